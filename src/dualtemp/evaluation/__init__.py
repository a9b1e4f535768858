"""How good features are: kNN, linear probes, few labels, fine-tuning, spread. Everything takes tensors.

Importing the package is cheap: torch is loaded with the first name that needs it.
"""

from typing import TYPE_CHECKING

from dualtemp.lazy import lazily

if TYPE_CHECKING:
    from dualtemp.evaluation.accuracy import Accuracy, top_accuracy
    from dualtemp.evaluation.calibration import expected_calibration_error, fit_temperature, uncertainty
    from dualtemp.evaluation.classifier import (
        Classifier,
        Predictions,
        cross_fitted_logits,
        fit_classifier,
        neighbor_distance,
    )
    from dualtemp.evaluation.clusters import Clusters, choose_k, find_clusters, k_means
    from dualtemp.evaluation.features import image_features, image_features_and_labels
    from dualtemp.evaluation.few_shot import FewShot, few_shot_accuracy
    from dualtemp.evaluation.fine_tune import fine_tuned
    from dualtemp.evaluation.knn import best_k, knn_accuracy, knn_votes
    from dualtemp.evaluation.measures import measure
    from dualtemp.evaluation.probe import LinearProbe, OnlineProbe, linear_probe, logistic_regression
    from dualtemp.evaluation.spread import alignment, effective_rank, feature_spread, uniformity
    from dualtemp.evaluation.wrong_labels import WrongLabels, suspected_wrong_labels

_HOME = {
    "Classifier": "classifier",
    "Predictions": "classifier",
    "Clusters": "clusters",
    "WrongLabels": "wrong_labels",
    "cross_fitted_logits": "classifier",
    "fit_classifier": "classifier",
    "neighbor_distance": "classifier",
    "expected_calibration_error": "calibration",
    "fit_temperature": "calibration",
    "uncertainty": "calibration",
    "choose_k": "clusters",
    "find_clusters": "clusters",
    "k_means": "clusters",
    "suspected_wrong_labels": "wrong_labels",
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
    "Classifier",
    "Clusters",
    "FewShot",
    "LinearProbe",
    "OnlineProbe",
    "Predictions",
    "WrongLabels",
    "alignment",
    "best_k",
    "choose_k",
    "cross_fitted_logits",
    "effective_rank",
    "expected_calibration_error",
    "feature_spread",
    "few_shot_accuracy",
    "find_clusters",
    "fine_tuned",
    "fit_classifier",
    "fit_temperature",
    "image_features",
    "image_features_and_labels",
    "k_means",
    "knn_accuracy",
    "knn_votes",
    "linear_probe",
    "logistic_regression",
    "measure",
    "neighbor_distance",
    "suspected_wrong_labels",
    "top_accuracy",
    "uncertainty",
    "uniformity",
]

__getattr__, __dir__ = lazily(__name__, _HOME)
