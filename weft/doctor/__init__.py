"""The data doctor: find faults in labelled texts before training on them."""

from weft.doctor.diagnose import examine as examine
from weft.doctor.finding import Diagnosis as Diagnosis
from weft.doctor.finding import Finding as Finding
from weft.doctor.finding import Place as Place
