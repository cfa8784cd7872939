"""Run timm's train.py under an invariance constraint: `python timm_train.py train.py` and its usual options."""

import runpy
import sys
from functools import partial

import timm.task

from invaug import Constraint, sets
from invaug.integrations.timm import InvarianceTask

timm.task.ClassificationTask = partial(InvarianceTask, constraints=[Constraint(sets.wide())])
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
