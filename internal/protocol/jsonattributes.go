package protocol

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// unknownAttribute is a number that the schema does not have. It replaces the name of an
// attribute that the schema does not have either.
const unknownAttribute = "-1"

// keepAttributes returns the JSON answer of a search with all unknown names of attributes
// replaced by unknownAttribute. Otherwise the JSON decoder would drop these names, and a
// threat that must not be enforced could become one without attributes, which is enforced.
// The decoder keeps an unknown number, and enforceable then drops its detail.
func keepAttributes(raw []byte) ([]byte, error) {
	var kept []byte
	done := int64(0) // kept has the bytes of raw up to here
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
			// Only commas and spaces come between two tokens, so the next quote begins this one.
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

// attributeWalk follows the tokens of a JSON text and knows whether they are in an array of
// attributes.
type attributeWalk struct {
	*json.Decoder
	named bool // the last token was "attributes", as a key or as a value
	depth int  // of nesting, the array of attributes included; 0: not in one
}

// inAttributes reports whether the last token is an element of an array of attributes.
func (w *attributeWalk) inAttributes() bool { return w.depth == 1 }

// note updates the walk. Call it for each token, after inAttributes.
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
