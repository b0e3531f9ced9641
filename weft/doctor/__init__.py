"""The data doctor: what is wrong with labelled texts, before a model learns it."""

from weft.doctor.diagnose import examine as examine
from weft.doctor.finding import Diagnosis as Diagnosis
from weft.doctor.finding import Finding as Finding
from weft.doctor.finding import Place as Place
