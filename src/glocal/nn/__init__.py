"""Neural network layers that take a signal and a graph."""

from glocal.nn import functional as functional
from glocal.nn import init as init
from glocal.nn import spectral as spectral
from glocal.nn.activation import BiasedReLU as BiasedReLU
from glocal.nn.activation import SoftThreshold as SoftThreshold
from glocal.nn.conv import GraphConv as GraphConv
from glocal.nn.conv import SharedGraphConv as SharedGraphConv
from glocal.nn.ranked import GraphResidualBlock as GraphResidualBlock
from glocal.nn.ranked import RankedGraphConv as RankedGraphConv
from glocal.nn.residual import Downsample as Downsample
from glocal.nn.residual import ResidualBlock as ResidualBlock
from glocal.nn.residual import Upsample as Upsample
from glocal.nn.sequential import GraphSequential as GraphSequential

__all__ = [
    "BiasedReLU",
    "Downsample",
    "GraphConv",
    "GraphResidualBlock",
    "GraphSequential",
    "RankedGraphConv",
    "ResidualBlock",
    "SharedGraphConv",
    "SoftThreshold",
    "Upsample",
    "functional",
    "init",
    "spectral",
]
