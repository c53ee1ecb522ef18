"""The experiments of the papers, by name: ``find("chain-mass").run(Run(out))``.

Each experiment is a module with a function ``run(run)``, imported only when it is run. Experiments that compare
backdrive with other tools are in the folder ``benchmarks`` of the repository, not in the package; they are listed only
if the repository is there.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..model import checks
from .run import Run, WrongOption

__all__ = ["Experiment", "Run", "WrongOption", "find", "names"]


@dataclass(frozen=True)
class Experiment:
    """One experiment: its name, a one-line summary, and the part of the paper that it reproduces."""

    name: str
    summary: str
    paper: str
    module: str
    """The module with the function ``run(run)``, in this package or in ``benchmarks`` of the repository."""
    compares: bool = False
    """Whether it compares backdrive with other tools: its module is then in the repository."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The options that it has besides those of all, and what they mean."""

    @property
    def available(self) -> bool:
        return not self.compares or self._repository() is not None

    def run(self, run: Run) -> None:
        """Run it. Numbers and figures go to the folder ``run.out``, which keeps the results so far on an interrupt."""
        for name in run.options:
            if name not in self.options:
                raise WrongOption(checks.unknown(f"option of {self.name}", name, self.options))
        if self.compares:
            if (repository := self._repository()) is None:
                raise ImportError(
                    f"{self.name} compares backdrive with other tools, whose harness is in backdrive's repository and "
                    "not in the installed package: run it there"
                )
            if str(repository) not in sys.path:
                sys.path.append(str(repository))
            module = importlib.import_module(f"benchmarks.{self.module}")
        else:
            module = importlib.import_module(f"{__name__}.{self.module}")
        run.begin(self.name)
        module.run(run)
        run.finish()

    def _repository(self) -> Path | None:
        """The repository: the one this package is imported from, else the current folder, else None."""
        for folder in (Path(__file__).parents[3], Path.cwd()):
            if (folder / "benchmarks" / f"{self.module}.py").is_file() and (folder / "src" / "backdrive").is_dir():
                return folder
        return None


_EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "chain-mass",
            "a ball hits a hanging chain; the masses of its links are inferred from the motion",
            "Belbute-Peres et al. 2018, section 4.1 and figure 1",
            "chain_mass",
        ),
        Experiment(
            "ball-throw",
            "a ball is thrown to lie at rest 10 m away after 10 s; its 6 velocities by gradients, and by CMA-ES",
            "Degrave et al. 2016, ball trajectory",
            "ball_throw",
        ),
        Experiment(
            "arm",
            "an arm of 1 m learns to reach any point, by the gradient with and without sensors, and by CMA-ES",
            "Degrave et al. 2016, robot arm",
            "arm",
            options={
                "method": "feedback, time, target, cma or cma-point",
                "updates": "of 256 evaluations each",
                "robot": "the MJCF file of an arm with servos, to learn instead",
                "tip": "the body of that robot that is to reach the target; else the last one",
            },
        ),
        Experiment(
            "co-design",
            "a quadruped's measures and its controller are learned together, by the gradient, and by CMA-ES",
            "Degrave et al. 2016, which names the optimisation of hardware parameters as possible",
            "co_design",
            options={"method": "controller, co-design, cma or cma-controller", "evaluations": "motions of each seed"},
        ),
        Experiment(
            "gait",
            "a quadruped learns to run from standstill by the gradient, and is compared with a trot tuned by CMA-ES",
            "Degrave et al. 2016, quadruped",
            "gait",
            options={
                "method": "trot, trot-wide or network",
                "physics": "mujoco or rigid; else mujoco",
                "evaluations": "motions of 8 s",
            },
        ),
        Experiment(
            "adversary",
            "a quadruped keeps its gait under pushes and loads that an adversary chose by the gradient, or chance",
            "Degrave et al. 2016, adversarial robotics training (named there, not done)",
            "adversary",
            options={
                "method": "before, nothing, random, replayed, extreme or adversary",
                "evaluations": "after the first gait: windows of 128 robots, with their gradient",
            },
        ),
        Experiment(
            "robots-table",
            "seconds for 10 s of 1 and of 128 quadrupeds with a neural network in the loop, with and without gradient",
            "Degrave et al. 2016, table of computing times",
            "robots_table",
        ),
        Experiment(
            "laikago-table",
            "a Laikago falls on its feet: time and memory of its gradient, beside autodiff tools, MuJoCo and MJX",
            "Qiao et al. 2021, performance",
            "laikago_table",
            compares=True,
        ),
        Experiment(
            "cartpole",
            "CartPole-v1, balanced by iLQR in boxes whose masses and sizes are learned; and in a learned network",
            "Belbute-Peres et al. 2018, section 4.3 and figure 5",
            "cartpole",
        ),
        Experiment(
            "locomotion",
            "a robot of Gymnasium, such as the Ant, learns to run by the gradient of the physics, and runs in MuJoCo",
            "Xu et al. 2022, short-horizon actor-critic; Gymnasium's environments",
            "locomotion",
            options={
                "env": "Ant, HalfCheetah, Hopper, Walker2d or Humanoid",
                "seconds": "of training",
                "method": "shac, or Stable-Baselines3's sac or ppo",
            },
        ),
        Experiment(
            "policy-enhancement",
            "pendulums of 1 to 7 links learn to rise; soft actor-critic with and without the gradient, beside others",
            "Qiao et al. 2021, policy enhancement",
            "policy_enhancement",
            options={"links": "1 to 7", "method": "sac, sac-policy, ppo, sql, mbpo, shac or bptt"},
        ),
        Experiment(
            "sample-enhancement",
            "an Ant learns to walk from samples and their neighbours, which the step's Jacobian tells",
            "Qiao et al. 2021, sample enhancement",
            "sample_enhancement",
            options={"method": "sac, sac-samples, ppo, sql, mbpo or shac"},
        ),
        Experiment(
            "breakout",
            "the Atari game, seen by colour filters and played by planning in a scene; its paddle is learned",
            "Belbute-Peres et al. 2018, section 4.3 and figure 6",
            "breakout",
        ),
    )
}


def names() -> list[str]:
    """Names of the experiments that can run here."""
    return [name for name, experiment in _EXPERIMENTS.items() if experiment.available]


def find(name: str) -> Experiment:
    """The experiment with this name; an unknown name raises ValueError and suggests the nearest."""
    if name not in _EXPERIMENTS:
        raise ValueError(checks.unknown("experiment", name, _EXPERIMENTS))
    return _EXPERIMENTS[name]
