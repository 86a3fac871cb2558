//! Parse trees as the server prints them, and the calls and operators in them that another function
//! could replace.

use std::collections::HashMap;

use tokio_postgres::Client;

/// A function or an operator: its schema, its name and its parameter types.
type Known = (String, String, Vec<u32>);

/// The functions and operators of the server, by OID.
pub struct Catalogue {
    functions: HashMap<u32, Known>,
    operators: HashMap<u32, Known>,
}

/// Types that accept any other type: a call with one of them is never exact.
const ANY: [u32; 12] = [
    2276, 2277, 2283, 2776, 3500, 3831, 5077, 5078, 5079, 5080, 2249, 2287,
];
const TEXT: u32 = 25;

/// A node, a list, or a word.
#[derive(Debug)]
enum Tree {
    Node(String, Vec<(String, Vec<Tree>)>),
    List(Vec<Tree>),
    Word(String),
}

impl Tree {
    fn field(&self, name: &str) -> &[Tree] {
        let Self::Node(_, fields) = self else {
            return &[];
        };
        let found = fields.iter().find(|(field, _)| field == name);
        found.map_or(&[], |(_, value)| value)
    }

    fn word(&self, name: &str) -> &str {
        match self.field(name) {
            [Self::Word(word)] => word,
            _ => "",
        }
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.word(name).parse().ok()
    }

    fn list(&self, name: &str) -> &[Tree] {
        match self.field(name) {
            [Self::List(list)] => list,
            _ => &[],
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Node(name, _) => name,
            _ => "",
        }
    }

    /// Whether this is an implicit conversion: another function might not need it.
    fn is_implicit(&self) -> bool {
        [
            "relabelformat",
            "funcformat",
            "coerceformat",
            "convertformat",
            "coercionformat",
        ]
        .iter()
        .any(|format| self.word(format) == "2")
    }

    /// Whether this is a string or NULL whose type only the function determines.
    fn is_untyped(&self, source: &str) -> bool {
        let at = self
            .number("location")
            .and_then(|at| usize::try_from(at).ok());
        let Some((before, text)) = at.and_then(|at| source.split_at_checked(at)) else {
            return false;
        };
        if self.name() != "CONST" {
            return false;
        }
        let after = if text.to_lowercase().starts_with("null") {
            &text[4..]
        } else {
            let Some(string) = text.strip_prefix('\'').or_else(|| text.strip_prefix("E'")) else {
                return false;
            };
            let end = string.replace("''", "__").find('\'');
            end.map_or("", |end| &string[end + 1..])
        };
        let named = ["interval", "timestamptz"];
        let before = before.trim_end().to_lowercase();
        !after.trim_start().starts_with("::") && !named.iter().any(|name| before.ends_with(name))
    }
}

impl Catalogue {
    pub async fn read(client: &Client) -> Self {
        let read = async |sql: &str| {
            let rows = client.query(sql, &[]).await.unwrap();
            let known = rows.iter().map(|row| {
                let types: Vec<u32> = row.get(3);
                (row.get(0), (row.get(1), row.get(2), types))
            });
            known.collect()
        };
        Self {
            functions: read(
                "SELECT p.oid, n.nspname::text, p.proname::text, p.proargtypes::oid[]
                   FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace",
            )
            .await,
            operators: read(
                "SELECT o.oid, n.nspname::text, o.oprname::text,
                        array_remove(ARRAY[o.oprleft, o.oprright], 0::oid)
                   FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace",
            )
            .await,
        }
    }

    /// Returns the calls and operators of a printed tree that are neither exact nor qualified.
    pub fn inexact(&self, printed: &str, source: &str) -> Vec<String> {
        let words = words(printed);
        let mut rest = words.as_slice();
        let mut found = Vec::new();
        while !rest.is_empty() {
            let (tree, after) = parse(rest);
            self.walk(&tree, source, &mut found);
            rest = after;
        }
        found
    }

    fn walk(&self, tree: &Tree, source: &str, found: &mut Vec<String>) {
        match tree {
            Tree::Word(_) => {}
            Tree::List(list) => {
                // unnest of several arrays is the server's own for each of them.
                let at = |tree: &Tree| {
                    tree.field("funcexpr")
                        .first()
                        .map(|call| call.word("location").to_owned())
                };
                let several =
                    list.len() > 1 && at(&list[0]).is_some() && at(&list[0]) == at(&list[1]);
                if !several {
                    list.iter().for_each(|one| self.walk(one, source, found));
                }
            }
            Tree::Node(_, fields) => {
                if let Some(why) = self.judge(tree, source) {
                    found.push(why);
                }
                for (_, value) in fields {
                    value.iter().for_each(|one| self.walk(one, source, found));
                }
            }
        }
    }

    /// Returns why this call could resolve to another function.
    fn judge(&self, tree: &Tree, source: &str) -> Option<String> {
        let function = |field| self.functions.get(&tree.number(field)?);
        let operator = || self.operators.get(&tree.number("opno")?);
        let (known, is_operator) = match tree.name() {
            "FUNCEXPR" if tree.word("funcformat") == "0" => (function("funcid")?, false),
            "AGGREF" => (function("aggfnoid")?, false),
            "WINDOWFUNC" => (function("winfnoid")?, false),
            "OPEXPR" | "DISTINCTEXPR" | "NULLIFEXPR" | "SCALARARRAYOPEXPR" => (operator()?, true),
            _ => return None,
        };
        let (schema, name, types) = known;
        let at = tree
            .number("location")
            .and_then(|at| usize::try_from(at).ok());
        let text = at.and_then(|at| source.get(at..)).unwrap_or_default();
        if schema == "posthaste" || text.starts_with("pg_catalog.") || text.starts_with("OPERATOR(")
        {
            return None;
        }
        let arguments: Vec<&Tree> = tree
            .list("args")
            .iter()
            .map(|one| {
                one.field("expr")
                    .first()
                    .filter(|_| one.name() == "TARGETENTRY")
                    .unwrap_or(one)
            })
            .collect();
        let is_array = tree.name() == "SCALARARRAYOPEXPR";
        let is_guessed = |(at, one): (usize, &&Tree)| {
            let is_explicit = if is_operator {
                !is_array && types.first() == types.last()
            } else {
                types.get(at) == Some(&TEXT)
            };
            one.is_implicit() || one.is_untyped(source) && !is_explicit
        };
        let inexact = types.iter().any(|one| ANY.contains(one))
            || tree.word("funcvariadic") == "true"
            || arguments.iter().enumerate().any(is_guessed);
        let shown: String = text.chars().take(60).collect();
        inexact.then(|| format!("{name} {types:?} at {shown:?}"))
    }
}

/// Returns the words of a printed tree without the bytes of constants.
fn words(printed: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut is_value = false;
    for word in printed.split_whitespace() {
        match word {
            "[" => is_value = true,
            _ if is_value => {
                // `]` may be followed by the end of the node.
                let Some((_, after)) = word.split_once(']') else {
                    continue;
                };
                is_value = false;
                split(after, &mut words);
            }
            _ => split(word, &mut words),
        }
    }
    words
}

fn split<'a>(mut word: &'a str, words: &mut Vec<&'a str>) {
    while !word.is_empty() {
        let mut escaped = false;
        let end = word.find(|c: char| {
            let ends = !escaped && "(){}".contains(c);
            escaped = c == '\\' && !escaped;
            ends
        });
        let end = match end {
            Some(0) => 1,
            Some(end) => end,
            None => word.len(),
        };
        words.push(&word[..end]);
        word = &word[end..];
    }
}

fn parse<'a, 'w>(words: &'w [&'a str]) -> (Tree, &'w [&'a str]) {
    let (first, mut rest) = words.split_first().unwrap();
    match *first {
        "{" => {
            let name = rest[0].to_owned();
            rest = &rest[1..];
            let mut fields: Vec<(String, Vec<Tree>)> = Vec::new();
            while rest[0] != "}" {
                if let Some(field) = rest[0].strip_prefix(':') {
                    fields.push((field.to_owned(), Vec::new()));
                    rest = &rest[1..];
                    continue;
                }
                let (value, after) = parse(rest);
                rest = after;
                if let Some((_, values)) = fields.last_mut() {
                    values.push(value);
                }
            }
            (Tree::Node(name, fields), &rest[1..])
        }
        "(" => {
            let mut list = Vec::new();
            while rest[0] != ")" {
                let (one, after) = parse(rest);
                list.push(one);
                rest = after;
            }
            (Tree::List(list), &rest[1..])
        }
        word => (Tree::Word(word.to_owned()), rest),
    }
}
