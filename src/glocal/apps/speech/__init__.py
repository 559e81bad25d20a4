"""Speech denoising: the paper's small networks on samples, and a larger one on the frames of a spectrogram."""
