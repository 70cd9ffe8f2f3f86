//! Shuffle sharding: selects the few of many queues that a flow may use.

/// Usable bits of a hash; a configuration that needs more is rejected.
const MAX_HASH_BITS: f64 = 60.0;
/// Maximum number of queues; more are rejected.
const MAX_DECK: u32 = 1 << 26;
/// Maximum hand size: with more cards, even the smallest deck needs more than [`MAX_HASH_BITS`].
pub(crate) const MAX_HAND: usize = 16;

/// Deals hands of queues from the bits of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealer {
    deck: u32,
    hand: u32,
}

/// The queues of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    cards: [u32; MAX_HAND],
    len: usize,
}

impl Hand {
    /// The queues, in the order they were dealt.
    pub fn cards(&self) -> &[u32] {
        self.cards.get(..self.len).unwrap_or_default()
    }
}

impl Dealer {
    /// Deals `hand` of `deck` queues; the error says why that is not possible.
    pub fn new(deck: u32, hand: u32) -> Result<Self, String> {
        if deck == 0 || hand == 0 {
            return Err(format!("deckSize {deck} or handSize {hand} is not positive"));
        }
        if hand > deck {
            return Err(format!("handSize {hand} is greater than deckSize {deck}"));
        }
        if deck > MAX_DECK {
            return Err(format!("deckSize {deck} is impractically large"));
        }
        let bits = (f64::from(deck).log2() * f64::from(hand)).ceil();
        if bits > MAX_HASH_BITS || hand as usize > MAX_HAND {
            return Err(format!(
                "required entropy bits of deckSize {deck} and handSize {hand} is greater than {MAX_HASH_BITS}"
            ));
        }
        Ok(Dealer { deck, hand })
    }

    /// Number of queues of a flow.
    pub(crate) fn hand_size(self) -> usize {
        self.hand as usize
    }

    /// One card of the hand for this hash, counted from zero.
    pub(crate) fn card(self, hash: u64, number: usize) -> u32 {
        let hand = u32::try_from(number + 1).unwrap_or(u32::MAX).min(self.hand);
        Dealer { hand, ..self }.deal(hash).cards().last().copied().unwrap_or_default()
    }

    /// Deals by this hash: equal hashes get equal hands, and the cards of a hand are distinct.
    pub fn deal(&self, hash: u64) -> Hand {
        let mut rest = hash;
        // Positions among the cards that were still in the deck.
        let mut positions = [0_u32; MAX_HAND];
        let mut hand = Hand::default();
        for (already, slot) in (0..self.hand).zip(&mut hand.cards) {
            let left = u64::from(self.deck - already);
            let position = u32::try_from(rest % left).unwrap_or_default();
            rest /= left;
            // Convert the position to a card, from the last dealt card back: positions at or after a dealt card move up.
            let earlier = positions.get(..hand.len).unwrap_or_default();
            *slot = earlier
                .iter()
                .rev()
                .fold(position, |card, taken| if card >= *taken { card + 1 } else { card });
            if let Some(here) = positions.get_mut(hand.len) {
                *here = position;
            }
            hand.len += 1;
        }
        hand
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn shuffle_sharding_deals_hands_from_the_digits_of_the_flow_hash() {
        // Deck of 4: the first card is hash mod 4, the second the (hash/4 mod 3)th of those left, and so on.
        let dealer = Dealer::new(4, 3).unwrap();
        assert_eq!(dealer.deal(0).cards(), [0, 1, 2]);
        assert_eq!(dealer.deal(1).cards(), [1, 0, 2]);
        // 23 = 3 + 4*(2 + 3*1): card 3, then the last of 0 1 2, then the second of 0 1.
        assert_eq!(dealer.deal(23).cards(), [3, 2, 1]);
    }

    #[test]
    fn all_hands_of_a_small_deck_come_up_once() {
        let dealer = Dealer::new(5, 3).unwrap();
        for hash in 0..60 {
            let cards: Vec<u32> = (0..3).map(|number| dealer.card(hash, number)).collect();
            assert_eq!(dealer.deal(hash).cards(), cards);
        }
        let hands: BTreeSet<Vec<u32>> = (0..60).map(|hash| dealer.deal(hash).cards().to_vec()).collect();
        assert_eq!(hands.len(), 60);
        assert!(hands.iter().all(|hand| hand.iter().collect::<BTreeSet<_>>().len() == 3));
    }

    #[test]
    fn decks_and_hands_that_a_hash_cannot_deal_are_refused() {
        assert!(Dealer::new(512, 6).is_ok());
        assert!(Dealer::new(1024, 6).is_ok());
        assert!(Dealer::new(1025, 6).unwrap_err().contains("entropy bits"));
        assert!(Dealer::new(0, 1).is_err());
        assert!(Dealer::new(3, 4).unwrap_err().contains("greater than deckSize"));
        assert!(Dealer::new(1 << 27, 1).unwrap_err().contains("impractically large"));
    }
}
