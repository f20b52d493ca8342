"""``vtaops demo``: a trained network from the package alone."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import vtaops
from docs import pictures
from vtaops.base.data import data_directory
from vtaops.cli import app

pytest.importorskip("onnxruntime")


def test_the_demo_reads_characters_and_leaves_its_files(tmp_path):
    folder = tmp_path / "made" / "here"
    done = CliRunner().invoke(app, ["demo", "-o", str(folder)])
    assert done.exit_code == 0, done.output
    read = float(re.search(r"100 samples, accuracy ([\d.]+)%", done.output)[1])
    assert read >= 95
    assert pictures.cycles(done.output) == json.loads(pictures.FIGURES.read_text())["network"]
    assert "</html>" in (folder / "glyphs.html").read_text()
    model = vtaops.load_model(folder / "glyphs.vtam")
    image = np.load(folder / "image.npy")
    np.testing.assert_array_equal(model.run(image), model.reference(image))
    with np.load(data_directory("examples/glyphs") / "samples.npz") as samples:
        assert model.run(image).argmax() == samples["labels"][0]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["demo", "-o", str(tmp_path / "file" / "below")])
    assert isinstance(done.exception, vtaops.VTAError)
    assert "cannot write to the folder" in str(done.exception)
