"""How good features are: kNN, linear probes, few labels, fine-tuning, spread. Everything takes tensors.

Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.lazy import lazily

if TYPE_CHECKING:
    from dualtemp.evaluation.accuracy import Accuracy, top_accuracy
    from dualtemp.evaluation.features import image_features, image_features_and_labels
    from dualtemp.evaluation.few_shot import FewShot, few_shot_accuracy
    from dualtemp.evaluation.fine_tune import fine_tuned
    from dualtemp.evaluation.knn import best_k, knn_accuracy, knn_votes
    from dualtemp.evaluation.measures import measure
    from dualtemp.evaluation.probe import LinearProbe, OnlineProbe, linear_probe, logistic_regression
    from dualtemp.evaluation.spread import alignment, effective_rank, feature_spread, uniformity

_HOME = {
    "Accuracy": "accuracy",
    "FewShot": "few_shot",
    "LinearProbe": "probe",
    "OnlineProbe": "probe",
    "alignment": "spread",
    "effective_rank": "spread",
    "feature_spread": "spread",
    "few_shot_accuracy": "few_shot",
    "fine_tuned": "fine_tune",
    "image_features": "features",
    "image_features_and_labels": "features",
    "best_k": "knn",
    "knn_accuracy": "knn",
    "knn_votes": "knn",
    "linear_probe": "probe",
    "logistic_regression": "probe",
    "measure": "measures",
    "top_accuracy": "accuracy",
    "uniformity": "spread",
}

__all__ = [
    "Accuracy",
    "FewShot",
    "LinearProbe",
    "OnlineProbe",
    "alignment",
    "best_k",
    "effective_rank",
    "feature_spread",
    "few_shot_accuracy",
    "fine_tuned",
    "image_features",
    "image_features_and_labels",
    "knn_accuracy",
    "knn_votes",
    "linear_probe",
    "logistic_regression",
    "measure",
    "top_accuracy",
    "uniformity",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
