use expect_test::{Expect, expect};

use crate::{Env, Type, Version};

fn check(text: &str, expected: &Expect) {
    let env = Env::kubernetes(Version::CURRENT).with_variables([("object", Type::Dyn), ("x", Type::Int)]);
    let issues = env.compile(text).unwrap_err();
    expected.assert_eq(&super::report(&env, &issues, "<expression>"));
}

#[test]
fn a_misspelt_variable_is_underlined_and_the_right_one_named() {
    check(
        "obejct.spec",
        &expect![[r"
        error: undeclared reference to 'obejct' (in container '')
         --> <expression>:1:1
          |
        1 | obejct.spec
          | ^^^^^^
          |
          = help: did you mean `object`?
    "]],
    );
}

#[test]
fn an_unknown_name_gets_the_list_of_known_ones() {
    check(
        "x > 1 &&\n  whatever == 2",
        &expect![[r"
        error: undeclared reference to 'whatever' (in container '')
         --> <expression>:2:3
          |
        2 |   whatever == 2
          |   ^^^^^^^^
          |
          = help: the variables here are `object`, `x`
    "]],
    );
}

#[test]
fn a_misspelt_function_is_underlined_without_its_arguments() {
    check(
        "'a'.startWith('b')",
        &expect![[r"
        error: undeclared reference to 'startWith' (in container '')
         --> <expression>:1:14
          |
        1 | 'a'.startWith('b')
          |     ^^^^^^^^^
          |
          = help: did you mean `startsWith`?
    "]],
    );
}

#[test]
fn wrong_arguments_underline_the_call_and_list_its_overloads() {
    check(
        "'hello'.charAt(true)",
        &expect![[r"
        error: found no matching overload for 'charAt' applied to 'string.(bool)'
         --> <expression>:1:15
          |
        1 | 'hello'.charAt(true)
          |         ^^^^^^^^^^^^
          |
          = help: there is `string.charAt(int)`
    "]],
    );
}

#[test]
fn operators_list_their_operand_types() {
    check(
        "x + 'a'",
        &expect![[r"
        error: found no matching overload for '_+_' applied to '(int, string)'
         --> <expression>:1:3
          |
        1 | x + 'a'
          |   ^
          |
          = help: there is `bytes + bytes`, `double + double`, `duration + duration`, `duration + timestamp`, `timestamp + duration`, `int + int`, `list(A) + list(A)`, `string + string`, and more
          = help: convert one side, for example with `int(…)`, `double(…)` or `string(…)`
    "]],
    );
}

#[test]
fn operators_and_functions_of_other_languages_get_a_hint() {
    check(
        "len(object) = 3",
        &expect![[r"
        error: Syntax error: token recognition error at: '= '
         --> <expression>:1:13
          |
        1 | len(object) = 3
          |             ^
          |
          = help: write `==` to compare; an expression cannot assign

        error: Syntax error: extraneous input '3' expecting <EOF>
         --> <expression>:1:15
          |
        1 | len(object) = 3
          |               ^
    "]],
    );
    check(
        "x > 1 and x < 3",
        &expect![[r"
        error: Syntax error: mismatched input 'and' expecting <EOF>
         --> <expression>:1:7
          |
        1 | x > 1 and x < 3
          |       ^^^
          |
          = help: write `&&` for a logical and
    "]],
    );
    check(
        "len(object)",
        &expect![[r"
        error: undeclared reference to 'len' (in container '')
         --> <expression>:1:4
          |
        1 | len(object)
          | ^^^
          |
          = help: `size(VALUE)` or `VALUE.size()` gives the length
    "]],
    );
}

#[test]
fn unclosed_strings_and_brackets_get_a_hint() {
    check(
        "(1 + 2",
        &expect![[r"
        error: Syntax error: missing ')' at '<EOF>'
         --> <expression>:1:7
          |
        1 | (1 + 2
          |       ^
          |
          = help: a bracket is not closed
    "]],
    );
    check(
        "'abc",
        &expect![[r"
        error: Syntax error: token recognition error at: ''abc'
         --> <expression>:1:1
          |
        1 | 'abc
          | ^
          |
          = help: the string is not closed

        error: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
         --> <expression>:1:5
          |
        1 | 'abc
          |     ^
          |
          = help: the expression ends where a value is expected
    "]],
    );
}

#[test]
fn invalid_literals_get_a_hint_with_their_syntax() {
    check(
        "duration('1x') > duration('1s')",
        &expect![[r"
        error: invalid duration argument
         --> <expression>:1:10
          |
        1 | duration('1x') > duration('1s')
          |          ^^^^
          |
          = help: a duration is written like `1h30m`, `90s` or `250ms`
    "]],
    );
    check(
        "[1, 'a']",
        &expect![[r"
        error: expected type 'int' but found 'string'
         --> <expression>:1:5
          |
        1 | [1, 'a']
          |     ^^^
          |
          = help: the elements of a list and the values of a map have one type; `dyn(VALUE)` mixes them
    "]],
    );
}

#[test]
fn a_long_line_is_shown_around_the_problem() {
    let text = format!("{} + nope + {}", vec!["x"; 60].join(" + "), vec!["x"; 60].join(" + "));
    check(
        &text,
        &expect![[r"
        error: undeclared reference to 'nope' (in container '')
         --> <expression>:1:241
          |
        1 | ...x + x + x + x + x + x + x + x + x + x + x + x + x + x + x + nope + x + x + x + x + x + x + x + x + x + x + x + x + x + x...
          |                                                                ^^^^
          |
          = help: the variables here are `object`, `x`
    "]],
    );
}

#[test]
fn control_characters_are_not_printed() {
    check(
        "'a\u{1b}[2J' + 1",
        &expect![[r"
        error: found no matching overload for '_+_' applied to '(string, int)'
         --> <expression>:1:9
          |
        1 | 'a�[2J' + 1
          |         ^
          |
          = help: there is `bytes + bytes`, `double + double`, `duration + duration`, `duration + timestamp`, `timestamp + duration`, `int + int`, `list(A) + list(A)`, `string + string`, and more
          = help: convert one side, for example with `int(…)`, `double(…)` or `string(…)`
    "]],
    );
}
