"""Denoising pictures with small trained networks on graphs (appendix B). `image.denoise` is the call for people."""
