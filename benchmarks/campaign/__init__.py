"""A campaign of random worlds: are gradients right, does anything gain energy, do bits depend on the company?

    python -m benchmarks.campaign                       20,000 motions, 2,000 worlds, all families: half an hour
    python -m benchmarks.campaign --minutes 5           as much of it as fits
    python -m benchmarks.campaign --only gradients      one part: gradients, energy or bits
    python -m benchmarks.campaign --resume FILE.jsonl   go on with a run that was ended
    python -m benchmarks.campaign --only gradients --seed 8 --family 98 --world 2    one world of a run again

Worlds come from families (`families`): kinds of shapes, joints and settings that are fixed, so that few kernels are
compiled, and numbers that are random. Every task (a family, a part, a number) runs in a process of its own: a crash or
a call that does not come back is an outcome, too. Results go to results/campaign: a line of JSON for every task, the
tables, and a reproduction of every motion that is wrong (`python -m benchmarks.campaign.look FOLDER` says where).
The exit code is 1 if a gradient is wrong and unmarked, energy is gained, bits differ, or a task failed.
"""
