"""Scripts and styles as they are sent: the same programs and the same rules as in the files, on the same lines, in fewer bytes."""

import json
import re

import pytest
from tests.page.node import STATIC, run

from holdfast.http.lean import lean_script, lean_style
from holdfast.http.page import Page

SCRIPTS = {
    "const a = 1; // why\n\n  b(a);\n": "const a=1;\n\nb(a);\n",
    "/** What\n * it is. */\nexport function a() {}\n": "\n\nexport function a(){}\n",
    "a /* in */ in /* the way */ b": "a in b",
    "f('//', \"/* a  b */\", 'it\\'s  //')": "f('//',\"/* a  b */\",'it\\'s  //')",
    '`// ${ a ? `  ${ b + "}  " } /* ` : { c : 1 }.c }  //`': '`// ${a?`  ${b+"}  "} /* `:{c:1}.c}  //`',
    "`\\`  \\${  $  ` / 2 / 3": "`\\`  \\${  $  `/2/3",
    'return /[/"`]  \\//.test(a) ? b / c / d : (e) / f[0] / 2': 'return/[/"`]  \\//.test(a)?b/c/d:(e)/f[0]/2',
    "x = / +/g, y = a.of / 2 / 3; [/ ./u] instanceof b": "x=/ +/g,y=a.of/2/3;[/ ./u]instanceof b",
    "/a/ in b": "/a/ in b",
    "a + +b - -c + ++d - e / /f  /.g": "a+ +b- -c+ ++d-e/ /f  /.g",
    "1 .toFixed(2) + 1.5 .toFixed() + a .b": "1 .toFixed(2)+1.5 .toFixed()+a.b",
    "async * #a ( ) { yield * this . #b ; }": "async*#a(){yield*this.#b;}",
    "let a = 1\n;[b] = c\nd\n++e": "let a=1\n;[b]=c\nd\n++e",
    "a ? .5 : \u03b1 in \u03b2": "a?.5:\u03b1 in \u03b2",
    'const a = "no end': 'const a = "no end',
    "const a = ` no end": "const a = ` no end",
}
SHEETS = {
    ".a > .b , .c :hover { margin : 0 auto ; }": ".a>.b,.c :hover{margin :0 auto;}",
    "a { color: var( --x ) !important }": "a{color:var(--x)!important}",
    "/* why */\n@media (min-width: 1px) and (hover) {\n  a {}\n}\n": "\n@media (min-width:1px) and (hover){\na{}\n}\n",
    'a::before { content: " {  /* "; }': 'a::before{content:" {  /* ";}',
    "a { width: calc(1px + 2px - (3px * 2)) }": "a{width:calc(1px + 2px - (3px * 2))}",
    "a /* */ b + c ~ d { font: 1em/1.5 x, 'y  z' }": "a b + c ~ d{font:1em/1.5 x,'y  z'}",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_loses_what_means_nothing(script):
    assert lean_script(script) == SCRIPTS[script]


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_sheet_loses_what_means_nothing(sheet):
    assert lean_style(sheet) == SHEETS[sheet]


def sent(pattern):
    """Each file of a pattern: its name, what stands in it, and what browsers get."""
    page = Page(STATIC)
    for file in sorted(STATIC.glob(pattern)):
        name = str(file.relative_to(STATIC))
        yield name, file.read_text(), page._file(name).body.decode()


def test_every_script_is_the_same_program_on_the_same_lines():
    """By the parser of node: every name, text, pattern and number is where it was. So an error names the line of the file."""
    scripts = list(sent("js/**/*.js"))
    assert len(scripts) > 50 and all(len(lean) < len(text) for _, text, lean in scripts)
    answer = run("--expose-internals", "same.mjs", text=json.dumps([*scripts, ["another", "a = b / c", "a = c / b"]]))
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == ["another"]


@pytest.mark.slow
def test_every_sheet_has_the_same_rules(browser):
    """By the browser itself, which tells each rule as it understood it; only values of our own are told with their spaces."""
    page = browser.new_page()
    rules = """(sheet) => {
      const made = new CSSStyleSheet();
      made.replaceSync(sheet);
      return [...made.cssRules].map((rule) => rule.cssText);
    }"""
    for name, text, lean in sent("css/*.css"):
        assert lean.count("\n") == text.count("\n") and len(lean) < len(text)
        one, other = (
            [re.sub(r"(?<=[,(:]) +", "", rule) for rule in page.evaluate(rules, each)] for each in (text, lean)
        )
        assert len(one) > 5 and one == other, name
    page.close()
