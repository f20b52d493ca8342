"""Names are data: refused where they are read, or quoted where they are written."""

import json
from dataclasses import replace

import pytest

import vtaops
from trials.hostile_files import network
from vtaops import HardwareConfig
from vtaops.base.quoting import c_text, script_json, tcl_word, terminal_text
from vtaops.errors import ConfigError, ProgramError, ShapeError
from vtaops.graph import Tensor
from vtaops.model import artefact

HOSTILE = "pynq */ __attribute__((constructor)) static void run(void) {} /*"


def renamed(data: bytes, name: str) -> bytes:
    """Return a model's file with another name of its configuration, and a right checksum."""
    header, blobs = artefact._FILE.opened(data)
    header["content"]["config"]["name"] = name
    return artefact._FILE.sealed(header, blobs)


@pytest.fixture(scope="module")
def model():
    return vtaops.compile_model(network(), "tiny")


@pytest.mark.parametrize("name", [HOSTILE, "", "a\nb", "x" * 300, "[exec id]", "a/b", "<b>", 3])
def test_a_models_file_whose_configuration_has_a_name_in_another_language_is_refused(model, name):
    data = artefact.dumps(model)
    assert artefact.loads(renamed(data, "mine (2)")).config.name == "mine (2)"
    with pytest.raises(ProgramError, match=r"is named|cannot have name|be printed"):
        artefact.loads(renamed(data, name))


@pytest.mark.parametrize("name", ["[exec id]", "a; b", "$x"])
def test_a_configuration_file_with_such_a_name_is_refused(name, tmp_path):
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(HardwareConfig.load("pynq").to_dict()))
    with pytest.raises(ConfigError, match=r"names have 1\.\.200 letters"):
        HardwareConfig.load(path)


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "\u202e", "", "x" * 5000])
def test_names_of_tensors_and_networks_can_be_printed(name):
    with pytest.raises(ShapeError, match="characters, all of which can be printed"):
        Tensor(name, (1,))
    with pytest.raises(ShapeError, match="characters, all of which can be printed"):
        vtaops.Graph(name)


def test_text_of_records_can_be_printed(model):
    row = replace(model.plan[0], reason="\x1b[2J")
    hostile = vtaops.Model(
        model.graph, model.config, model.capabilities, [row, *model.plan[1:]], model.stages
    )
    with pytest.raises(ProgramError, match="cannot be printed"):
        artefact.loads(artefact.dumps(hostile))


def test_quoted_text_ends_nothing_around_it():
    assert c_text('a*/"\\??/\n\x1bé.b') == "a__________.b"
    assert tcl_word("[exec id] $x}") == r"\u005bexec\u0020id\u005d\u0020\u0024x\u007d"
    assert tcl_word("") == "{}"
    assert "<" not in script_json(["<!--<script>"])
    assert json.loads(script_json(["<!--<script>"])) == ["<!--<script>"]
    assert terminal_text("a\x1b[2J\tb\n\u202e") == "a\\x1b[2J\tb\n\\u202e"
