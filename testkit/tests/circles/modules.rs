//! Parses a crate from its root: the tree of modules, the names in each, and every path that its
//! code uses.
//!
//! Code of tests is left out: everything whose `cfg` does not hold without `test`, and functions
//! behind `#[test]`. Attributes and documentation import nothing.

use std::collections::HashMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// Files by name: those of a folder, or of a test.
pub trait Source {
    /// The text of a file, or nothing where there is none. Folders are separated by `/`.
    fn text(&self, file: &str) -> Option<String>;
}

impl<F: Fn(&str) -> Option<String>> Source for F {
    fn text(&self, file: &str) -> Option<String> {
        self(file)
    }
}

/// What a name in a module stands for.
#[derive(Clone)]
pub enum Binding {
    /// A module, by number.
    Module(usize),
    /// An item that this module defines.
    Item,
    /// The end of this path, by `use`.
    Import(Vec<String>),
}

/// A module, in a file of its own or inside one.
pub struct Module {
    pub file: usize,
    pub parent: Option<usize>,
    pub names: HashMap<String, Vec<Binding>>,
    /// Paths whose names are all imported: `use path::*`.
    pub globs: Vec<Vec<String>>,
}

/// A path in the code of a module, from its first word.
pub struct Use {
    pub module: usize,
    pub path: Vec<String>,
    pub line: usize,
}

/// All modules of a crate, in which the root has the number 0.
pub struct Crate {
    files: Vec<String>,
    modules: Vec<Module>,
    uses: Vec<Use>,
}

impl Crate {
    /// Reads the root file and all modules that it declares.
    pub fn read(source: &dyn Source, root: &str) -> Result<Self, String> {
        let mut tree = Self { files: Vec::new(), modules: Vec::new(), uses: Vec::new() };
        tree.read_file(source, root.to_owned(), None)?;
        Ok(tree)
    }

    pub fn files(&self) -> &[String] {
        &self.files
    }

    pub fn uses(&self) -> &[Use] {
        &self.uses
    }

    pub fn module(&self, number: usize) -> &Module {
        &self.modules[number]
    }

    pub fn file_of(&self, module: usize) -> usize {
        self.modules[module].file
    }

    fn add_module(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.modules.push(Module { file, parent, names: HashMap::new(), globs: Vec::new() });
        self.modules.len() - 1
    }

    /// Reads a file as the module that it is, and returns the number of that module.
    fn read_file(
        &mut self,
        source: &dyn Source,
        name: String,
        parent: Option<usize>,
    ) -> Result<usize, String> {
        let text = source.text(&name).ok_or_else(|| format!("{name}: no such file"))?;
        let parsed = syn::parse_file(&text).map_err(|e| format!("{name}:{}: {e}", e.span().start().line))?;
        let folder = folder_of_children(&name);
        self.files.push(name);
        let module = self.add_module(self.files.len() - 1, parent);
        self.read_items(source, &parsed.items, module, &folder)?;
        Ok(module)
    }

    fn read_items(
        &mut self,
        source: &dyn Source,
        items: &[Item],
        module: usize,
        folder: &str,
    ) -> Result<(), String> {
        for item in items.iter().filter(|item| ships(attributes(item))) {
            if let Item::Mod(inner) = item {
                self.read_module(source, inner, module, folder)?;
                continue;
            }
            for name in names_of(item) {
                self.modules[module].names.entry(name).or_default().push(Binding::Item);
            }
            let mut collector = Collector { tree: self, module };
            collector.visit_item(item);
        }
        Ok(())
    }

    /// Reads `mod name { ... }`, or the file of `mod name;`.
    fn read_module(
        &mut self,
        source: &dyn Source,
        inner: &syn::ItemMod,
        parent: usize,
        folder: &str,
    ) -> Result<(), String> {
        let name = inner.ident.to_string();
        let child = if let Some((_, items)) = &inner.content {
            let child = self.add_module(self.file_of(parent), Some(parent));
            self.read_items(source, items, child, &format!("{folder}{name}/"))?;
            child
        } else {
            let candidates = match path_attribute(&inner.attrs) {
                Some(path) => {
                    let file = &self.files[self.file_of(parent)];
                    let beside = file.rfind('/').map_or("", |at| &file[..=at]);
                    vec![format!("{beside}{path}")]
                }
                None => vec![format!("{folder}{name}.rs"), format!("{folder}{name}/mod.rs")],
            };
            let file = candidates.iter().find(|file| source.text(file).is_some());
            let file = file.ok_or_else(|| format!("mod {name}: neither of {candidates:?} is there"))?;
            self.read_file(source, file.clone(), Some(parent))?
        };
        self.modules[parent].names.entry(name).or_default().push(Binding::Module(child));
        Ok(())
    }

    /// Notes a `use`: its names, and, unless others may import them from here, that it imports what
    /// it names. A name that a module hands on to others is imported by those who use it.
    fn read_use(&mut self, item: &syn::ItemUse, module: usize) {
        if item.leading_colon.is_some() {
            return;
        }
        let hands_on = !matches!(item.vis, syn::Visibility::Inherited);
        let mut leaves = Vec::new();
        flatten(&item.tree, &mut Vec::new(), &mut leaves);
        for leaf in leaves {
            match leaf.name {
                Some(name) => {
                    let binding = Binding::Import(leaf.path.clone());
                    self.modules[module].names.entry(name).or_default().push(binding);
                }
                None if leaf.glob => self.modules[module].globs.push(leaf.path.clone()),
                None => {}
            }
            if !hands_on {
                self.uses.push(Use { module, path: leaf.path, line: leaf.line });
            }
        }
    }
}

/// The folder in which the files of a module's children are.
fn folder_of_children(file: &str) -> String {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    let (folder, name) = stem.rsplit_once('/').map_or(("", stem), |(folder, name)| (folder, name));
    let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    match name {
        "lib" | "main" | "mod" => folder,
        name => format!("{folder}{name}/"),
    }
}

/// One path of a `use`, and the name that it gives to the end of the path, if any.
struct Leaf {
    path: Vec<String>,
    name: Option<String>,
    glob: bool,
    line: usize,
}

fn flatten(tree: &UseTree, before: &mut Vec<String>, leaves: &mut Vec<Leaf>) {
    let leaf = |path: Vec<String>, name: Option<String>, glob, ident: &syn::Ident| Leaf {
        path,
        name: name.filter(|name| name != "_"),
        glob,
        line: ident.span().start().line,
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            match &*path.tree {
                UseTree::Glob(_) => leaves.push(leaf(before.clone(), None, true, &path.ident)),
                tree => flatten(tree, before, leaves),
            }
            before.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push(leaf(before.clone(), before.last().cloned(), false, &name.ident));
        }
        UseTree::Rename(rename) if rename.ident == "self" => {
            leaves.push(leaf(before.clone(), Some(rename.rename.to_string()), false, &rename.ident));
        }
        UseTree::Name(name) => {
            let end = name.ident.to_string();
            leaves.push(leaf(
                [&before[..], std::slice::from_ref(&end)].concat(),
                Some(end),
                false,
                &name.ident,
            ));
        }
        UseTree::Rename(rename) => {
            let path = [&before[..], &[rename.ident.to_string()]].concat();
            leaves.push(leaf(path, Some(rename.rename.to_string()), false, &rename.ident));
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| match tree {
            UseTree::Glob(glob) => leaves.push(Leaf {
                path: before.clone(),
                name: None,
                glob: true,
                line: glob.star_token.spans[0].start().line,
            }),
            tree => flatten(tree, before, leaves),
        }),
        UseTree::Glob(_) => {}
    }
}

/// Whether code with these attributes is in what ships.
fn ships(attributes: &[Attribute]) -> bool {
    attributes.iter().all(|attribute| {
        let holds = |condition: syn::Result<syn::Meta>| condition.is_ok_and(|c| may_hold(&c));
        !attribute.path().is_ident("test")
            && (!attribute.path().is_ident("cfg") || holds(attribute.parse_args()))
    })
}

/// Whether a condition of `cfg` can hold where `test` does not.
fn may_hold(condition: &syn::Meta) -> bool {
    let inner = |list: &syn::MetaList| -> Vec<syn::Meta> {
        type List = syn::punctuated::Punctuated<syn::Meta, syn::Token![,]>;
        list.parse_args_with(List::parse_terminated)
            .map(|list| list.into_iter().collect())
            .unwrap_or_default()
    };
    match condition {
        syn::Meta::Path(path) => !path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("all") => inner(list).iter().all(may_hold),
        syn::Meta::List(list) if list.path.is_ident("any") => inner(list).iter().any(may_hold),
        _ => true,
    }
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let path = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    match &path.meta {
        syn::Meta::NameValue(syn::MetaNameValue {
            value: syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(file), .. }),
            ..
        }) => Some(file.value()),
        _ => None,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// The names that an item defines in its module. What a macro makes is not among them.
fn names_of(item: &Item) -> Vec<String> {
    let foreign = |item: &syn::ForeignItem| match item {
        syn::ForeignItem::Fn(f) => Some(f.sig.ident.to_string()),
        syn::ForeignItem::Static(s) => Some(s.ident.to_string()),
        _ => None,
    };
    let name = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::TraitAlias(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        Item::Macro(syn::ItemMacro { ident: Some(ident), .. }) => ident,
        Item::ForeignMod(i) => return i.items.iter().filter_map(foreign).collect(),
        _ => return Vec::new(),
    };
    vec![name.to_string()]
}

/// Notes the paths in the code of a module.
struct Collector<'a> {
    tree: &'a mut Crate,
    module: usize,
}

impl Collector<'_> {
    fn note(&mut self, path: Vec<String>, line: usize) {
        self.tree.uses.push(Use { module: self.module, path, line });
    }

    /// Notes what looks like a path in the arguments of a macro: words with `::` between them.
    /// `$crate` is `crate`.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        // Colons since the last word: two continue a path.
        let (mut colons, mut line, mut after_dot) = (0, 0, false);
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 && !path.is_empty() {
                        self.note(std::mem::take(&mut path), line);
                    }
                    // The name of a field or method is no path, and neither is one behind a leading
                    // `::`.
                    if !after_dot && (colons != 2 || !path.is_empty()) {
                        line = word.span().start().line;
                        path.push(word.to_string());
                    }
                    (colons, after_dot) = (0, false);
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' => {
                    (colons, after_dot) = (colons + 1, false);
                }
                other => {
                    if !path.is_empty() {
                        self.note(std::mem::take(&mut path), line);
                    }
                    after_dot = matches!(&other, TokenTree::Punct(sign) if sign.as_char() == '.');
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.note_tokens(group.stream());
                    }
                }
            }
        }
        if !path.is_empty() {
            self.note(path, line);
        }
    }

    fn note_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let line = first.ident.span().start().line;
            self.note(path.segments.iter().map(|s| s.ident.to_string()).collect(), line);
        }
    }

    /// Visits a path behind `<T as Trait>::name`: where there is no trait, the path begins with a
    /// name of `T`.
    fn visit_qualified(&mut self, qself: Option<&syn::QSelf>, path: &syn::Path) {
        match qself {
            Some(qself) => {
                self.visit_type(&qself.ty);
                if qself.position > 0 {
                    self.visit_path(path);
                } else {
                    path.segments.iter().for_each(|segment| self.visit_path_arguments(&segment.arguments));
                }
            }
            None => self.visit_path(path),
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.note_path(path);
        visit::visit_path(self, path);
    }

    fn visit_type_path(&mut self, path: &'ast syn::TypePath) {
        self.visit_qualified(path.qself.as_ref(), &path.path);
    }

    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        self.visit_qualified(path.qself.as_ref(), &path.path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.note_path(&call.path);
        self.note_tokens(call.tokens.clone());
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        // A constant or unit value; names of variables are small.
        let name = pattern.ident.to_string();
        if name.starts_with(char::is_uppercase) {
            self.note(vec![name], pattern.ident.span().start().line);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.tree.read_use(item, self.module);
    }

    // Who may see an item, and attributes, import nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_item(&mut self, item: &'ast Item) {
        if ships(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(i) => &i.attrs,
            syn::ImplItem::Fn(i) => &i.attrs,
            syn::ImplItem::Type(i) => &i.attrs,
            syn::ImplItem::Macro(i) => &i.attrs,
            _ => return,
        };
        if ships(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if ships(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_stmt_macro(&mut self, call: &'ast syn::StmtMacro) {
        if ships(&call.attrs) {
            visit::visit_stmt_macro(self, call);
        }
    }

    fn visit_expr_block(&mut self, block: &'ast syn::ExprBlock) {
        if ships(&block.attrs) {
            visit::visit_expr_block(self, block);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if ships(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, value: &'ast syn::FieldValue) {
        if ships(&value.attrs) {
            visit::visit_field_value(self, value);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if ships(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }
}
