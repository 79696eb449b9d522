"""Predictions of one model: the predictor, files of predictions, overlays."""
