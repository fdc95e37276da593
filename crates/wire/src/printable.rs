//! Text of somebody else (a peer, a file, a client) made fit to be shown: nothing in it can move a
//! cursor, start a line of its own or look like other text.

use std::borrow::Cow;

/// True for a character that is not shown as it is: control characters, among them those that begin
/// escape sequences of terminals, characters that change the direction of text, characters that
/// nobody sees, and separators of lines.
pub fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text with such characters written as `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(hides) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hides(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_terminal_would_obey_is_shown_by_its_number() {
        assert_eq!(printable("\u{1b}[2J\u{9b}31m\r\n\u{7f}"), "\\u{1b}[2J\\u{9b}31m\\u{d}\\u{a}\\u{7f}");
        // The end of a name, turned around.
        assert_eq!(printable("gw\u{202e}elpmaxe.\u{202c}"), "gw\\u{202e}elpmaxe.\\u{202c}");
        assert_eq!(printable("a\u{200b}b\u{feff}c\u{2028}"), "a\\u{200b}b\\u{feff}c\\u{2028}");
    }

    #[test]
    fn words_of_every_script_stay_as_they_are() {
        for text in ["", "CN=gw, O=Straße", "Привет", "日本語", "שלום", "a\\b \"c\" 'd'"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }
}
