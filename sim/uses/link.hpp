// The binding of `link`.
#pragma once

#include <nanobind/nanobind.h>

void bind_link(nanobind::module_& m);
