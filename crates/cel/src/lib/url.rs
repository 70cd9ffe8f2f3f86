//! The URL library. URLs are parsed and printed as in Go's `net/url`.

use value::go::url::Url;

use super::{Ext, ext, string};
use crate::env::Builder;
use crate::eval::{Error, EvalResult};
use crate::val::{MapEntries, MapVal, Val};

/// With more parameters, `getQuery` counts towards the step limit: it costs one, and a parameter of a few bytes takes
/// hundreds of bytes in the map.
const FREE_PARAMETERS: usize = 64;
const STEPS_PER_PARAMETER: usize = 4;

/// Declares `url`, `isURL` and the methods of URLs.
pub(crate) fn add(b: &mut Builder) {
    b.function(
        "url",
        &[("string_to_url", "(string) -> kubernetes.URL", |_, args| {
            let text = string(args, 0)?;
            let fail =
                |error: String| Error::new(format!("URL parse error during conversion from string: {error}"));
            Url::parse_request_uri(text).map_err(fail)?;
            Ok(Val::ext(Ext::Url(Url::parse(text).map_err(fail)?)))
        })],
    );
    b.function(
        "isURL",
        &[("is_url_string", "(string) -> bool", |_, args| {
            Ok(Val::Bool(Url::parse_request_uri(string(args, 0)?).is_ok()))
        })],
    );
    b.function(
        "getScheme",
        &[("url_get_scheme", "kubernetes.URL.() -> string", |_, args| part(args, |url| url.scheme.clone()))],
    );
    b.function(
        "getHost",
        &[("url_get_host", "kubernetes.URL.() -> string", |_, args| part(args, |url| url.host.clone()))],
    );
    b.function(
        "getHostname",
        &[("url_get_hostname", "kubernetes.URL.() -> string", |_, args| {
            part(args, |url| url.host_and_port().0.to_owned())
        })],
    );
    b.function(
        "getPort",
        &[("url_get_port", "kubernetes.URL.() -> string", |_, args| {
            part(args, |url| url.host_and_port().1.to_owned())
        })],
    );
    b.function(
        "getEscapedPath",
        &[("url_get_escaped_path", "kubernetes.URL.() -> string", |_, args| part(args, Url::escaped_path))],
    );
    b.function(
        "getQuery",
        &[("url_get_query", "kubernetes.URL.() -> map(string, list(string))", |cx, args| {
            let url = at(args)?;
            let parameters = url.raw_query.bytes().filter(|byte| *byte == b'&').count() + 1;
            if parameters > FREE_PARAMETERS {
                cx.steps.take(parameters.saturating_mul(STEPS_PER_PARAMETER))?;
            }
            let mut entries = MapEntries::default();
            for (key, values) in url.query() {
                entries.insert(Val::string(key), Val::strings(values));
            }
            Ok(Val::Map(MapVal::of(entries)))
        })],
    );
}

fn at<'v>(args: &'v [Val<'_>]) -> Result<&'v Url, Error> {
    match ext(args, 0)? {
        Ext::Url(url) => Ok(url),
        _ => Err(Error::no_such_overload()),
    }
}

fn part<'a>(args: &[Val<'a>], part: fn(&Url) -> String) -> EvalResult<'a> {
    Ok(Val::string(part(at(args)?)))
}
