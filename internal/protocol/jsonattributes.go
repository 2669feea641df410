package protocol

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// unknownAttribute stands for an attribute of a threat that the schema does not
// know. It is no number of the schema either.
const unknownAttribute = "-1"

// keepAttributes returns the JSON answer of a search in which the names of attributes that the
// schema does not know are replaced by a number that it does not know. The decoder
// drops unknown names, and what is left could be a threat without attributes, which
// is enforced; an unknown number stays, and has its detail dropped.
func keepAttributes(raw []byte) ([]byte, error) {
	var kept []byte
	done := int64(0) // how much of raw is in kept
	w := attributeWalk{Decoder: json.NewDecoder(bytes.NewReader(raw))}
	for {
		before := w.InputOffset()
		token, err := w.Token()
		if err == io.EOF {
			return append(kept, raw[done:]...), nil
		}
		if err != nil {
			return nil, err
		}
		if name, ok := token.(string); ok && w.inAttributes() && !knownAttribute(name) {
			// Between two tokens are commas and spaces, none of which has a quote.
			start := before + int64(bytes.IndexByte(raw[before:], '"'))
			kept = append(append(kept, raw[done:start]...), unknownAttribute...)
			done = w.InputOffset()
		}
		w.note(token)
	}
}

func knownAttribute(name string) bool {
	_, ok := sbv5.ThreatAttribute_value[name]
	return ok
}

// attributeWalk knows whether a walk through JSON is in a list of attributes.
type attributeWalk struct {
	*json.Decoder
	named bool // the last token was the name of such a list, or a text that looks so
	depth int  // of brackets and braces since its own bracket; 0: not in one
}

// inAttributes reports whether the token that has just been read is an element.
func (w *attributeWalk) inAttributes() bool { return w.depth == 1 }

// note is told of each token.
func (w *attributeWalk) note(token json.Token) {
	delim, _ := token.(json.Delim)
	switch {
	case delim == '[' && w.named, (delim == '[' || delim == '{') && w.depth > 0:
		w.depth++
	case (delim == ']' || delim == '}') && w.depth > 0:
		w.depth--
	}
	w.named = token == "attributes"
}
