"""What each option of SHAC does for learning: robots trained as in `locomotion`, and with one setting changed.

    python -m benchmarks.shac_options [--env Hopper Ant] [--seeds 0 1] [--steps 1000000] [--out results/shac_options]

All trainings have the same number of steps. Prints the mean return of the last policy over 20 episodes of the twin of
Gymnasium's environment, of each seed, and the processor time. Trainings that are in the folder are not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from backdrive.envs import VectorEnv
from backdrive.experiments.locomotion import COURSES
from backdrive.learn import SHAC, evaluate, widened
from backdrive.progress import bar
from backdrive.threads import one_torch_thread

EPISODES = 20
OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "horizon that adapts, most_clipped 0.2": {"most_clipped": 0.2},
    "windows half as long": {"horizon": 0.5},
    "windows twice as long": {"horizon": 2.0},
    "no limit of gradients between steps": {"clip": None},
    "entropy 0.1, noise that stays": {"entropy": 0.1, "last_noise": 1.0},
    "entropy that adapts": {"entropy": 0.1, "adapt": 0.01, "least_entropy": -1.0, "last_noise": 1.0},
    "two critics": {"critics": 2},
    "TD(0)": {"trace": 0.0},
    "TD(1)": {"trace": 1.0},
    "a fall is worth 0": {"terminal_value": False},
    "observations not normalised": {"normalise": False},
    "layers not normalised": {"layer_norm": False},
    "first episodes that start together": {"staggered": False},
    "discount 0.99 throughout": {"discount": 0.99, "last_discount": None},
    "noise that stays": {"last_noise": 1.0},
}
"""Changes of a robot's settings; horizon: a factor."""


def train(env: str, change: dict[str, Any], seed: int, steps: int) -> dict[str, float]:
    """The score of one training: mean and standard deviation of returns, and seconds of processor time."""
    course = COURSES[env]
    settings = {**course.settings, **change}
    if "horizon" in change:
        settings["horizon"] = round(change["horizon"] * course.settings.get("horizon", 16))
    agent = SHAC(f"MuJoCo{env}", seed=seed, dtype="float32", threads=1, options=course.options, **settings)
    began = time.process_time()
    agent.train(steps=steps)
    seconds = time.process_time() - began
    test = VectorEnv(f"MuJoCo{env}", num_envs=EPISODES, max_episode_steps=1000, threads=1)
    policy = agent.policy()
    if course.sees is not None:
        policy = widened(policy, test.reset()[0].shape[-1], range(course.sees))
    score = evaluate(policy, test)
    return {"mean": score.mean, "std": score.std, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", nargs="+", default=["Hopper", "Ant"], choices=list(COURSES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("results/shac_options"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for env in given.env:
        file = given.out / f"{env}-{given.steps}.json"
        found: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
        todo = [(name, seed) for name in OPTIONS if changes(env, name) for seed in given.seeds]
        with bar(True, env, len(todo)) as advance, one_torch_thread():
            for k, (name, seed) in enumerate(todo):
                advance(k, f"{name}, seed {seed}")
                if str(seed) not in found.setdefault(name, {}):
                    found[name][str(seed)] = train(env, OPTIONS[name], seed, given.steps)
                    file.write_text(json.dumps(found) + "\n")
        print(f"\n| {env}, {given.steps:,} steps | return of each seed | CPU-s |\n|---|---|---:|")
        for name, scores in found.items():
            returns = ", ".join(f"{x['mean']:,.0f} ± {x['std']:,.0f}" for x in scores.values())
            print(f"| {name} | {returns} | {min(x['seconds'] for x in scores.values()):.0f} |")


def changes(env: str, name: str) -> bool:
    """Whether an option changes anything for a robot."""
    plain = SHAC.settings_type(**{k: x for k, x in COURSES[env].settings.items() if k != "num_envs"})
    change = OPTIONS[name]
    return not change or any(key == "horizon" or getattr(plain, key) != x for key, x in change.items())


if __name__ == "__main__":
    main()
