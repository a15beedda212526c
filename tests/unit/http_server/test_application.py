"""Django's application behind the server: in which encoding its requests are read."""

import codecs
import tracemalloc
from io import BytesIO
from typing import Any

import pytest
from django.conf import settings
from django.http.multipartparser import MultiPartParserError

from scheduler.http_server.application import Application, keep_no_codec_names

FORM = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb-\xe2\x82\xac\r\n--x--\r\n'


def environ(content_type: str, **more: Any) -> dict[str, Any]:
    same = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "wsgi.input": BytesIO(), "CONTENT_TYPE": content_type}
    return same | more


@pytest.mark.parametrize("charset", ["base64", "zlib", "idna", "punycode", "undefined", "utf-16", "latin-1", "none"])
@pytest.mark.parametrize("parameter", ["charset=", "charset*=utf-8''"])
def test_a_codec_that_a_client_names_reads_neither_its_url_nor_its_form(charset: str, parameter: str) -> None:
    asked = Application.request_class(environ(f"text/html; {parameter}{charset}", QUERY_STRING="a=b-%E2%82%AC"))
    assert asked.GET["a"] == "b-€"
    sent = Application.request_class(
        environ(
            f"multipart/form-data; boundary=x; {parameter}{charset}",
            REQUEST_METHOD="POST",
            CONTENT_LENGTH=str(len(FORM)),
            **{"wsgi.input": BytesIO(FORM)},
        )
    )
    assert sent.POST["a"] == "b-€"


@pytest.mark.parametrize("parameter", ["charset*=none''utf-8", "charset*=idna''%FF", "boundary*=undefined''x"])
def test_a_content_type_that_cant_be_read_counts_as_none(parameter: str) -> None:
    asked = Application.request_class(environ(f"multipart/form-data; {parameter}", REQUEST_METHOD="POST"))
    assert (asked.content_type, asked.META["CONTENT_TYPE"]) == ("", "")
    assert not asked.POST


def test_a_boundary_that_no_encoding_can_write_is_refused() -> None:
    said = "multipart/form-data; boundary*=unicode_escape''%5Cud800"
    asked = Application.request_class(environ(said, REQUEST_METHOD="POST", CONTENT_LENGTH="0"))
    with pytest.raises(MultiPartParserError):
        asked.POST  # noqa: B018 - reading it parses the form


def sent(form: bytes) -> Any:
    more = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": str(len(form)), "wsgi.input": BytesIO(form)}
    return Application.request_class(environ("multipart/form-data; boundary=x", **more))


def field(head: bytes, value: bytes = b"v") -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="a"%b\r\n\r\n%b\r\n' % (head, value)


@pytest.mark.parametrize(
    "head", [b"\r\n;" * 300, b";" * 900, b"; b=c" * 150, b"\r\nContent-Type: text/plain" + b"; b=c" * 150]
)
def test_the_heads_of_a_forms_fields_have_few_parameters(head: bytes) -> None:
    asked = sent(field(b"") + field(head) + b"--x--\r\n")
    with pytest.raises(MultiPartParserError):
        asked.POST  # noqa: B018 - reading it parses the form
    assert not asked.POST
    assert sent(field(b"; x=y", b";\r\n" * 300) + b"--x--\r\n").POST["a"] == ";\r\n" * 300


def test_a_form_has_no_more_parts_than_fields_whatever_the_parts_are() -> None:
    nameless = b"--x\r\nContent-Disposition:;filename=x\r\n\r\n\r\n" * (settings.DATA_UPLOAD_MAX_NUMBER_FIELDS + 2)
    asked = sent(nameless + field(b";" * 900) + b"--x--\r\n")
    with pytest.raises(MultiPartParserError):
        asked.POST  # noqa: B018 - as above


def test_a_form_in_parts_is_no_larger_than_another() -> None:
    heads = field(b"\r\nX: " + b"y" * 900)
    asked = sent(heads * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE // len(heads) + 1))
    with pytest.raises(MultiPartParserError):
        asked.POST  # noqa: B018 - as above


@pytest.mark.parametrize("parameter", ["charset={}", "charset*={}''utf-8"])
def test_the_names_of_codecs_that_clients_make_up_are_not_kept(parameter: str) -> None:
    keep_no_codec_names()
    tracemalloc.start()
    try:
        for number in range(100):
            Application.request_class(environ(f"text/plain; {parameter.format(f'{len(parameter)}{number:07}' * 500)}"))
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "name", ["UTF-8", "utf 8", "ISO_8859-1:1987", "idna", "latin-1", "utf-8-sig", "unicode-escape"]
)
def test_pythons_own_codecs_are_found(name: str) -> None:
    keep_no_codec_names()
    assert codecs.lookup(name)
