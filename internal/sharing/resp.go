package sharing

import (
	"bytes"
	"fmt"
)

// Bounds of what a Redis may send. A list is stored in parts of 256 KiB, and a search asks
// about 1,000 prefixes at most, with 11 kB each.
const (
	maxBulk     = 1 << 20  // bytes of one string
	maxLine     = 16 << 10 // bytes of an error or of another string without a length
	maxElements = 1 << 16  // of one answer, nested arrays included
	maxBytes    = 16 << 20 // of all strings of one answer, those without a length too
	maxNesting  = 8
	// keptWords of a message, keptText bytes of each, are for the guard.
	keptWords = 3
	keptText  = 512
)

// word is the beginning of a string in a message: keptText bytes of it, and "" of what is none.
type word []byte

// set makes w a copy of other.
func (w *word) set(other word) { *w = append((*w)[:0], other...) }

// message is what a scanner has seen of an answer, a push or a command.
type message struct {
	kind  byte            // as it is written, such as '*'
	n     int             // elements; -1: no array
	words [keptWords]word // elements, or one string that is no array
}

// scanner reads RESP3 (https://redis.io/docs/latest/develop/reference/protocol-spec/) as it
// comes, keeps its bounds, and calls end after each whole message. It takes only what the library reads in
// the same way: the two must agree about where a message ends. The zero scanner with an end is
// ready for use.
type scanner struct {
	end func(*message) error

	at       place
	kind     byte // of the element at hand
	text     word
	size     int  // bytes of text
	last     byte // of a line
	left     int  // bytes that a string still has, or its end
	open     [maxNesting]int
	depth    int
	elements int
	bytes    int
	message  message
}

// place is where in an element a scanner is.
type place uint8

const (
	inKind place = iota
	inLine
	inString
	inEnd
)

// scan reads p. After an error the scanner must not be used.
func (s *scanner) scan(p []byte) (err error) {
	for len(p) > 0 && err == nil {
		switch s.at {
		case inKind:
			err = s.begin(p[0])
			p = p[1:]
		case inLine:
			end := bytes.IndexByte(p, '\n')
			if end < 0 {
				return s.keepLine(p)
			}
			if err = s.keepLine(p[:end]); err == nil {
				err = s.endLine()
			}
			p = p[end+1:]
		case inString:
			n := min(s.left, len(p))
			s.keep(p[:n])
			if s.left -= n; s.left == 0 {
				s.at, s.left = inEnd, len("\r\n")
			}
			p = p[n:]
		case inEnd:
			if p[0] != "\r\n"[2-s.left] {
				return fmt.Errorf("a string is longer than its %d bytes", s.size)
			}
			if s.left--; s.left == 0 {
				err = s.endElement()
			}
			p = p[1:]
		}
	}
	return err
}

// begin notes the kind of the next element.
func (s *scanner) begin(kind byte) error {
	if bytes.IndexByte([]byte("+-:_#,($=!*~%>"), kind) < 0 {
		return fmt.Errorf("an element begins with %q", kind)
	}
	if kind == '>' && s.depth > 0 {
		return fmt.Errorf("a push is inside of an answer")
	}
	if s.depth == 0 {
		s.message.kind, s.message.n = kind, -1
	}
	s.at, s.kind, s.size, s.last, s.text = inLine, kind, 0, 0, s.text[:0]
	return nil
}

// keep notes text of the element at hand.
func (s *scanner) keep(p []byte) {
	s.size += len(p)
	s.text = append(s.text, p[:min(keptText-len(s.text), len(p))]...)
}

// keepLine notes a part of a line.
func (s *scanner) keepLine(p []byte) error {
	s.keep(p)
	if len(p) > 0 {
		s.last = p[len(p)-1]
	}
	if s.size > maxLine {
		return fmt.Errorf("a line has more than %d bytes", maxLine)
	}
	return nil
}

// endLine decides what follows a line.
func (s *scanner) endLine() error {
	if s.last != '\r' {
		return fmt.Errorf("a line does not end with CR and LF")
	}
	s.size--
	s.text = s.text[:min(s.size, len(s.text))]
	switch s.kind {
	case '+', '-', ':', ',', '(':
		if s.bytes += s.size; s.bytes > maxBytes {
			return fmt.Errorf("an answer with more than %d bytes of lines", maxBytes)
		}
		return s.endElement()
	case '_', '#':
		if s.kind == '_' && s.size != 0 || s.kind == '#' && s.size != 1 {
			return fmt.Errorf("a null or a boolean has %d bytes", s.size)
		}
		return s.endElement()
	}
	n, err := s.length()
	s.size, s.text = 0, s.text[:0]
	switch {
	case err != nil:
		return err
	case n < 0: // an absent string or array
		return s.endElement()
	case bytes.IndexByte([]byte("$=!"), s.kind) >= 0:
		return s.openString(n)
	}
	return s.openArray(n)
}

// length reads the number in a line.
func (s *scanner) length() (n int, err error) {
	text := string(s.text)
	if text == "-1" && (s.kind == '$' || s.kind == '*') {
		return -1, nil
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' || len(text) > 9 { // 9 digits fit into an int of 32 bits
			return 0, fmt.Errorf("a length is %.32q", text)
		}
		n = 10*n + int(c-'0')
	}
	if text == "" {
		return 0, fmt.Errorf("a length is missing")
	}
	return n, nil
}

// openString begins a string of n bytes.
func (s *scanner) openString(n int) error {
	if n > maxBulk || s.bytes+n > maxBytes {
		return fmt.Errorf("a string of %d bytes: one may have %d, and an answer %d", n, maxBulk, maxBytes)
	}
	s.bytes += n
	s.at, s.left = inString, n
	if n == 0 {
		s.at, s.left = inEnd, len("\r\n")
	}
	return nil
}

// openArray begins an array of n elements, or of a map's n pairs.
func (s *scanner) openArray(n int) error {
	if s.kind == '%' {
		n *= 2
	}
	if s.elements += n; s.elements > maxElements {
		return fmt.Errorf("an answer of %d elements, at most %d are allowed", s.elements, maxElements)
	}
	if s.depth == maxNesting {
		return fmt.Errorf("arrays are nested more than %d times", maxNesting)
	}
	if s.depth == 0 {
		s.message.n = n
	}
	s.at = inKind
	if n == 0 {
		return s.endElement()
	}
	s.open[s.depth] = n
	s.depth++
	return nil
}

// endElement notes that an element has ended, and the arrays that end with it.
func (s *scanner) endElement() error {
	m := &s.message
	for s.at = inKind; s.depth > 0; {
		if i := m.n - s.open[0]; s.depth == 1 && i < keptWords {
			m.words[i].set(s.text)
		}
		if s.open[s.depth-1]--; s.open[s.depth-1] > 0 {
			return nil
		}
		s.depth--
		s.text = s.text[:0] // an array has no text
	}
	if m.n < 0 {
		m.words[0].set(s.text)
	}
	return s.endMessage()
}

// endMessage hands a whole message on.
func (s *scanner) endMessage() error {
	err := s.end(&s.message)
	s.elements, s.bytes = 0, 0
	for i := range s.message.words {
		s.message.words[i] = s.message.words[i][:0]
	}
	return err
}
