"""The old place of `glocal.atomic`, kept for one release."""

from glocal.atomic import check_free as check_free
from glocal.atomic import check_writable as check_writable
from glocal.atomic import output_error as output_error
from glocal.atomic import write_whole as write_whole
