package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// message reads one protobuf message from a stream, field by field, so that a large list
// needs no buffer of its size. It is not safe for concurrent use.
type message struct {
	from   byteReader
	left   int64 // bytes still to read; negative: the message ends where from does
	fields int   // tags read so far
}

// byteReader is the source of a message: a bufio.Reader or another message.
type byteReader interface {
	io.Reader
	io.ByteReader
}

var (
	errWireType = fmt.Errorf("%w: a field of unknown wire type", updater.ErrMalformed)
	errCut      = fmt.Errorf("%w: a truncated message", updater.ErrMalformed)
)

// maxFields is the most fields of a message. An answer has some hundred lists, a list two
// dozen fields; the rest is room for later versions. The bound stops a body that never ends.
const maxFields = 10_000

// ReadByte implements io.ByteReader.
func (m *message) ReadByte() (byte, error) {
	if m.left == 0 {
		return 0, io.EOF
	}
	b, err := m.from.ReadByte()
	if m.left > 0 {
		m.left--
		err = unexpected(err)
	}
	return b, err
}

// Read implements io.Reader.
func (m *message) Read(p []byte) (n int, err error) {
	if m.left == 0 {
		return 0, io.EOF
	}
	if m.left > 0 {
		p = p[:min(int64(len(p)), m.left)]
	}
	n, err = m.from.Read(p)
	if m.left > 0 {
		m.left -= int64(n)
		err = unexpected(err)
	}
	return n, err
}

// unexpected returns errCut for io.EOF, and err otherwise.
func unexpected(err error) error {
	if err == io.EOF {
		return errCut
	}
	return err
}

// tag reads the number and the wire type of the next field.
func (m *message) tag() (protowire.Number, protowire.Type, error) {
	v, err := m.uvarint()
	if err != nil {
		return 0, 0, err
	}
	if m.fields++; m.fields > maxFields {
		return 0, 0, fmt.Errorf("%w: a message of more than %d fields", updater.ErrMalformed, maxFields)
	}
	field, kind := protowire.DecodeTag(v)
	if field < protowire.MinValidNumber {
		return 0, 0, fmt.Errorf("%w: a field without a number", updater.ErrMalformed)
	}
	return field, kind, nil
}

// uvarint reads a variable-length number. At the end of the message the error is io.EOF.
func (m *message) uvarint() (v uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		b, err := m.ReadByte()
		if err != nil {
			if shift > 0 {
				err = unexpected(err)
			}
			return 0, err
		}
		if v |= uint64(b&0x7f) << shift; b < 0x80 {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w: a number of more than 64 bits", updater.ErrMalformed)
}

// size reads the length of a field, which must fit into the message.
func (m *message) size() (uint64, error) {
	v, err := m.uvarint()
	if err != nil {
		return 0, unexpected(err)
	}
	if v > maxListBytes || m.left >= 0 && int64(v) > m.left {
		return 0, fmt.Errorf("%w: a field of %d bytes", updater.ErrMalformed, v)
	}
	return v, nil
}

// sub returns the message in a field whose tag has been read.
func (m *message) sub() (*message, error) {
	size, err := m.size()
	return &message{from: m, left: int64(size)}, err
}

// appendField reads a field whose tag has been read, and appends the field with its tag. It
// is an error if dst would become longer than most bytes. A variable-length number is not
// counted before it is appended: it can exceed the bound by its own length.
func (m *message) appendField(dst []byte, field protowire.Number, kind protowire.Type, most int64) ([]byte, error) {
	dst = protowire.AppendTag(dst, field, kind)
	var size uint64
	switch kind {
	case protowire.VarintType:
		v, err := m.uvarint()
		return protowire.AppendVarint(dst, v), unexpected(err)
	case protowire.Fixed32Type:
		size = 4
	case protowire.Fixed64Type:
		size = 8
	case protowire.BytesType:
		var err error
		if size, err = m.size(); err != nil {
			return dst, err
		}
		dst = protowire.AppendVarint(dst, size)
	default:
		return dst, errWireType
	}
	switch {
	case m.left >= 0 && int64(size) > m.left:
		return dst, errCut
	case int64(len(dst))+int64(size) > most:
		return dst, fmt.Errorf("%w: a field of %d bytes makes more than %d bytes with the fields before it", updater.ErrMalformed, size, most)
	}
	return m.appendBytes(dst, int64(size))
}

// appendBytes reads size bytes and appends them. It allocates memory for the bytes that have
// come, not for the announced size.
func (m *message) appendBytes(dst []byte, size int64) ([]byte, error) {
	for size > 0 {
		at := len(dst)
		dst = slices.Grow(dst, int(min(size, 1<<16)))
		dst = dst[:at+int(min(size, int64(cap(dst)-at)))]
		n, err := io.ReadFull(m, dst[at:])
		if m.left < 0 && err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		if size -= int64(n); err != nil {
			return dst[:at+n], unexpected(err)
		}
	}
	return dst, nil
}

// skip skips a field whose tag has been read.
func (m *message) skip(kind protowire.Type) error {
	switch kind {
	case protowire.VarintType:
		_, err := m.uvarint()
		return unexpected(err)
	case protowire.Fixed32Type, protowire.Fixed64Type, protowire.BytesType:
		size := uint64(map[protowire.Type]int{protowire.Fixed32Type: 4, protowire.Fixed64Type: 8}[kind])
		if kind == protowire.BytesType {
			var err error
			if size, err = m.size(); err != nil {
				return err
			}
		}
		_, err := io.CopyN(io.Discard, m, int64(size))
		return unexpected(err)
	}
	return errWireType
}

// unknownAttribute is a number that the schema does not have. It replaces the name of an
// attribute that the schema does not have either.
const unknownAttribute = "-1"

// keepAttributes returns the JSON answer of a search with all unknown names of attributes
// replaced by unknownAttribute. Otherwise the JSON decoder would drop these names, and a
// threat that must not be enforced could become one without attributes, which is enforced.
// The decoder keeps an unknown number, and enforceable then drops its detail.
func keepAttributes(raw []byte) ([]byte, error) {
	var kept []byte
	done := int64(0)                  // kept has the bytes of raw up to here
	named, attributes := false, false // the last token was "attributes", the last delimiter began the array of that name
	d := json.NewDecoder(bytes.NewReader(raw))
	for {
		before := d.InputOffset()
		token, err := d.Token()
		if err == io.EOF {
			return append(kept, raw[done:]...), nil
		}
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case json.Delim: // an array or object among attributes is none that can be decoded
			attributes = t == '[' && named
		case string:
			if _, known := sbv5.ThreatAttribute_value[t]; attributes && !known {
				// Only commas and spaces come between two tokens, so the next quote begins this one.
				start := before + int64(bytes.IndexByte(raw[before:], '"'))
				kept = append(append(kept, raw[done:start]...), unknownAttribute...)
				done = d.InputOffset()
			}
		}
		named = token == "attributes"
	}
}
