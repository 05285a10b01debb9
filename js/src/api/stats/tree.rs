//! The nodes of an engine.

use crate::layout::*;
use crate::shell::shell;
use crate::stats::{Item, NodeRef, add, with};
use crate::texts::Texts;
use crate::tree;
use leapgate::stats::{DefaultNode, NodeTree};
use std::rc::Rc;
use wasm_bindgen::prelude::wasm_bindgen;

fn place(tree: &NodeTree, kind: u32, [name, inner]: [&str; 2]) -> Option<NodeRef> {
    Some(match kind {
        NODE_ROOT => NodeRef::Entrance(Rc::clone(tree.root())),
        NODE_INBOUND => NodeRef::Cluster(Rc::clone(tree.inbound())),
        NODE_ENTRANCE => NodeRef::Entrance(tree.entrance(name)?),
        NODE_DEFAULT => NodeRef::Default(tree.default_node(name, inner)?),
        NODE_CLUSTER => NodeRef::Cluster(tree.cluster(name)?),
        NODE_ORIGIN => NodeRef::Alone(tree.cluster(name)?.origin(inner)?),
        _ => return None,
    })
}

/// The number of a node: one of the `NODE_…` of `layout`. Its names are in the buffer, each with its length before it. Negative if
/// there is no such node.
#[wasm_bindgen]
pub fn tree_node(engine: u32, kind: u32, bytes: usize) -> f64 {
    let found = shell(|shell| {
        let mut names = tree::parts(shell.buffer.bytes(bytes));
        let mut name = || std::str::from_utf8(names.next().unwrap_or_default()).unwrap_or_default();
        let names = [name(), name()];
        place(shell.engines.get(engine)?.store().tree()?, kind, names)
    });
    found.map_or(-1.0, |place| add(Item::Node(place)))
}

/// Writes the names of the nodes below a node into the buffer: one of the `BELOW_…` of `layout`.
#[wasm_bindgen]
pub fn node_names(node: u32, kind: u32) -> f64 {
    let mut names = Texts::default();
    with(node, |held| {
        let Item::Node(place) = held else { return None };
        let mut resources = |nodes: Vec<Rc<DefaultNode>>| {
            nodes.iter().for_each(|node| names.add(node.resource()));
        };
        match (place, kind) {
            (NodeRef::Entrance(node), BELOW_RESOURCES) => resources(node.children()),
            (NodeRef::Default(node), BELOW_RESOURCES) => resources(node.children()),
            (NodeRef::Entrance(node), BELOW_ENTRANCES) => {
                let entrances = node.entrances();
                entrances
                    .iter()
                    .for_each(|entrance| names.add(entrance.name()));
            }
            (NodeRef::Cluster(node), BELOW_ORIGINS) => {
                node.origins().iter().for_each(|name| names.add(name));
            }
            _ => {}
        }
        Some(())
    });
    shell(|shell| shell.buffer.write(names.bytes()))
}

/// Writes the names of all resources into the buffer.
#[wasm_bindgen]
pub fn tree_resources(engine: u32) -> f64 {
    let mut names = Texts::default();
    shell(|shell| {
        let engine = shell.engines.get(engine);
        let tree = engine.and_then(|engine| engine.store().tree());
        let resources = tree.map(NodeTree::resources);
        resources.iter().flatten().for_each(|name| names.add(name));
    });
    shell(|shell| shell.buffer.write(names.bytes()))
}
