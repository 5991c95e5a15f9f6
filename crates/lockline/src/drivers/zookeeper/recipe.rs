//! Who is in, and whom to watch, as told by the list of a line's znodes: pure.

use super::node::Node;
use crate::line::{Front, Mode};

/// The places of a line in order. The claims of one identity share a place: their znodes have the same number.
#[derive(Debug, Default)]
pub(super) struct Places {
    places: Vec<Place>,
    /// So many of them, from the first, are in.
    admitted: usize,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) number: i32,
    pub(super) mode: Mode,
    pub(super) nodes: Vec<Node>,
}

/// What to watch in order to learn that one gets in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Watch<'a> {
    /// This claim: it goes, or it says that it got in.
    Claim(&'a Node),
    /// Whoever comes and goes: only the first that waits for permits has to, because any holder may make room.
    Everybody,
}

impl Places {
    /// Sorts the children of a line's znode; those that are no claims are left out.
    pub(super) fn new<S: AsRef<str>>(children: impl IntoIterator<Item = S>) -> Places {
        let mut nodes: Vec<Node> =
            children.into_iter().filter_map(|name| Node::parse(name.as_ref())).collect();
        // The number wraps around after 2³¹ claims; live ones are never that far apart.
        if let Some(origin) = nodes.first().map(|node| node.number) {
            nodes.sort_by(|a, b| {
                let from = |node: &Node| node.number.wrapping_sub(origin);
                from(a).cmp(&from(b)).then_with(|| a.name.cmp(&b.name))
            });
        }
        let mut places: Vec<Place> = Vec::new();
        for node in nodes {
            match places.last_mut().filter(|place| place.number == node.number) {
                Some(place) => {
                    // Curator lets a writer read: its two claims share a number.
                    if node.mode == Mode::Exclusive {
                        place.mode = Mode::Exclusive;
                    }
                    place.nodes.push(node);
                }
                None => places.push(Place { number: node.number, mode: node.mode, nodes: vec![node] }),
            }
        }
        let mut front = Front::default();
        let admitted = places.iter().take_while(|place| front.admit(place.mode)).count();
        Places { places, admitted }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        self.places.iter()
    }

    /// How many places stand before this one; `None` if it is not there.
    pub(super) fn ahead_of(&self, number: i32) -> Option<usize> {
        self.places.iter().position(|place| place.number == number)
    }

    /// Whether so many places before it let a place in.
    pub(super) fn is_in(&self, ahead: usize) -> bool {
        ahead < self.admitted
    }

    /// Whether somebody behind this place waits for permits, and so wants to know that it is in.
    pub(super) fn permits_behind(&self, ahead: usize) -> bool {
        let permits = |place: &Place| matches!(place.mode, Mode::Permits { .. });
        permits(&self.places[ahead]) && self.places[ahead + 1..].iter().any(permits)
    }

    /// Whether the place with so many before it is in as soon as the one right before it, which is in, has gone. A mutex has
    /// one holder, and nobody comes in before it; only an identity's claims, and Curator's writers that read, share a place.
    pub(super) fn inherits(&self, ahead: usize) -> bool {
        let one_before = ahead.checked_sub(1).and_then(|before| self.places.get(before));
        let is_alone = |node: &Node| node.identity.is_none() && node.is_of_mutex();
        self.places[ahead].mode == Mode::Exclusive
            && one_before.is_some_and(|place| matches!(&place.nodes[..], [node] if is_alone(node)))
    }

    /// Whom the place with so many before it has to watch; nobody, if it is in.
    pub(super) fn watch(&self, ahead: usize) -> Option<Watch<'_>> {
        if self.is_in(ahead) {
            return None;
        }
        let before = &self.places[..ahead];
        let nearest = |place: &'_ Place| -> bool {
            // Readers do not wait for readers.
            self.places[ahead].mode != Mode::Shared || place.mode != Mode::Shared
        };
        let last = before.iter().rev().find(|place| nearest(place))?;
        let all_permits =
            before.iter().chain([&self.places[ahead]]).all(|p| matches!(p.mode, Mode::Permits { .. }));
        if ahead == self.admitted && all_permits {
            return Some(Watch::Everybody);
        }
        last.nodes.last().map(Watch::Claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(names: &[&str]) -> Places {
        Places::new(names.iter().map(|name| name.to_string()))
    }

    fn watched(places: &Places, ahead: usize) -> Option<i32> {
        match places.watch(ahead)? {
            Watch::Claim(node) => Some(node.number),
            Watch::Everybody => None,
        }
    }

    #[test]
    fn exclusive_claims_watch_the_one_before() {
        let line = places(&["x-lock-0000000012", "y-lock-0000000010", "other", "z-lock-0000000011"]);
        assert_eq!((line.ahead_of(10), line.ahead_of(11), line.ahead_of(12)), (Some(0), Some(1), Some(2)));
        assert!(line.is_in(0) && !line.is_in(1));
        assert_eq!((watched(&line, 1), watched(&line, 2)), (Some(10), Some(11)));
    }

    #[test]
    fn readers_watch_the_writer_before() {
        let line = places(&[
            "a__READ__0000000001",
            "b__READ__0000000002",
            "c__WRIT__0000000003",
            "d__READ__0000000004",
            "e__READ__0000000005",
        ]);
        assert!(line.is_in(1) && !line.is_in(2) && !line.is_in(3));
        assert_eq!((watched(&line, 2), watched(&line, 3), watched(&line, 4)), (Some(2), Some(3), Some(3)));
    }

    #[test]
    fn only_the_first_that_waits_for_permits_watches_everybody() {
        let uuid = "_c_01234567-89ab-cdef-0123-456789abcdef";
        let name = |count: u32, number: u32| format!("{uuid}-permits-{count}-3-lock-{number:010}");
        let line = Places::new([name(2, 1), name(2, 2), name(1, 3)]);
        assert!(line.is_in(0) && !line.is_in(1) && !line.is_in(2));
        assert_eq!(line.watch(1), Some(Watch::Everybody));
        assert_eq!(watched(&line, 2), Some(2));
        assert!(line.permits_behind(0) && !line.permits_behind(2));
    }

    #[test]
    fn the_number_wraps_around() {
        let line = places(&["a-lock--2147483648", "b-lock-2147483647", "c-lock--2147483647"]);
        assert_eq!((line.ahead_of(i32::MAX), line.ahead_of(i32::MIN)), (Some(0), Some(1)));
        assert_eq!(line.ahead_of(-2_147_483_647), Some(2));
    }

    #[test]
    fn claims_with_one_number_are_one_place() {
        let line = places(&["a__WRIT__0000000001", "b__READ__0000000001", "c__READ__0000000002"]);
        assert_eq!(line.iter().count(), 2);
        assert!(!line.is_in(1));
    }
}
