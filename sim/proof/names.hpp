// The walk of a program on names of tiles, as a class of the Python module.
#pragma once

#include <nanobind/nanobind.h>

void bind_names(nanobind::module_& m);
