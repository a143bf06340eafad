"""Whether everything is there that the settings need: read, and nothing sent to anybody.

A check is one async function in a file of its own, from a ``Subject`` to findings; ``examine.CHECKS`` lists them. To
add one, write it and put it into that list.
"""

from embedkit.doctor.examine import CHECKS, Check, examine
from embedkit.doctor.finding import Examination, Finding, Subject
from embedkit.doctor.stored import check_store

__all__ = ["CHECKS", "Check", "Examination", "Finding", "Subject", "check_store", "examine"]
