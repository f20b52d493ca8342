"""The examples of the first two chapters of the book: they run, and give what they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def start():
    return load("tvm_getting_started")


@pytest.fixture(scope="module")
def expressions():
    return load("tvm_expressions")


def matrix(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


def test_vector_add(start):
    a, b, c = (x.numpy() for x in start.vector_add())
    assert np.array_equal(c, a + b)
    assert c.any()


def test_argument_errors_name_what_is_wrong(start):
    messages = start.argument_errors()
    assert "shape" in messages["another length"]
    assert "dtype" in messages["another dtype"]


def test_save_and_load(start, tmp_path):
    a, b, _ = (x.numpy() for x in start.arrays())
    assert np.array_equal(start.save_and_load(tmp_path / "add.so"), a + b)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "int64"])
def test_dtypes(expressions, dtype):
    result = expressions.add_of_dtype(dtype)
    assert result.dtype == dtype
    assert np.array_equal(result, (2 * np.arange(10)).astype(dtype))


def test_conversion(expressions):
    values = matrix(20) * 10
    assert np.array_equal(expressions.to_integer(values), values.astype("int32"))


def test_variable_length(expressions):
    assert expressions.add_of_any_length() == [5, 100, 1000]


def test_index_expressions(expressions):
    a = matrix(6, 4)
    assert np.array_equal(expressions.transpose(a), a.T)
    assert np.array_equal(expressions.reshape(a, 3, 8), a.reshape(3, 8))
    assert np.array_equal(expressions.slice_with_steps(a, (1, 0), (2, 3)), a[1::2, ::3])


def test_reductions(expressions):
    a = matrix(5, 7)
    np.testing.assert_allclose(expressions.row_sums(a), a.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(expressions.row_products(a), a.prod(axis=1), rtol=1e-5)


def test_conditions(expressions):
    a = matrix(5, 5)
    assert np.array_equal(expressions.lower_triangle(a), np.tril(a))
    assert np.array_equal(expressions.zero_padding(matrix(3, 4)), np.pad(matrix(3, 4), 1))


@pytest.mark.parametrize("name", ["tvm_getting_started", "tvm_expressions"])
def test_the_examples_run_as_scripts(name, capsys):
    load(name).main()
    assert len(capsys.readouterr().out.splitlines()) > 5


def test_a_kernel_runs_on_another_machine(capsys):
    load("remote_kernel").main([])
    assert "GFLOPS on 127.0.0.1, equal to NumPy" in capsys.readouterr().out
