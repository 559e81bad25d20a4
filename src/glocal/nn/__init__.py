"""Layers that take a signal and a graph."""

from glocal.nn import functional as functional
from glocal.nn import init as init
from glocal.nn import spectral as spectral
from glocal.nn.activation import BiasedReLU as BiasedReLU
from glocal.nn.activation import SoftThreshold as SoftThreshold
from glocal.nn.conv import GraphConv as GraphConv
from glocal.nn.conv import SharedGraphConv as SharedGraphConv
from glocal.nn.sequential import GraphSequential as GraphSequential

__all__ = [
    "BiasedReLU",
    "GraphConv",
    "GraphSequential",
    "SharedGraphConv",
    "SoftThreshold",
    "functional",
    "init",
    "spectral",
]
