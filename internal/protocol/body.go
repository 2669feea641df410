package protocol

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// body is the decompressed body of an answer. Read fails once ctx has ended, once the body is
// longer than max, or once it has grown too much by decompression.
type body struct {
	io.Closer
	ctx       context.Context
	from      io.Reader // the decompressed bytes
	wire      *wireReader
	read, max int64 // decompressed bytes
}

// Bound makes the body of an answer decompress what comes by gzip, and fail once ctx has
// ended, once it is longer than maxBytes, compressed or decompressed, once it has grown too
// much by decompression, or if it ends before its Content-Length. If Bound returns an error,
// the body is as it was.
func Bound(ctx context.Context, answer *http.Response, maxBytes int64) error {
	if answer.ContentLength > maxBytes {
		return fmt.Errorf("%w: an answer of %d bytes, at most %d are allowed", updater.ErrMalformed, answer.ContentLength, maxBytes)
	}
	wire := &wireReader{from: answer.Body, declared: answer.ContentLength, max: maxBytes}
	b := &body{Closer: answer.Body, ctx: ctx, from: wire, wire: wire, max: maxBytes}
	coding := answer.Header.Get("Content-Encoding")
	switch strings.ToLower(coding) {
	case "", "identity":
	case "gzip", "x-gzip": // equal, says RFC 9110 section 8.4.1.3
		b.from = &gzipReader{from: wire}
	default:
		return fmt.Errorf("%w: an answer compressed by %q, asked for gzip", updater.ErrMalformed, coding)
	}
	answer.Body = b
	return nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.from.Read(p[:min(int64(len(p)), b.max-b.read+1)]) // one more than max, to notice a longer body
	b.read += int64(n)
	switch {
	case b.read > b.max:
		return n, tooLong(b.max)
	case b.read > freeBytes+maxRatio*b.wire.read:
		return n, fmt.Errorf("%w: %d compressed bytes became %d bytes, at most %d times as many are allowed", updater.ErrMalformed, b.wire.read, b.read, maxRatio)
	}
	return n, err
}

// tooLong returns the error for an answer of more than maxBytes.
func tooLong(maxBytes int64) error {
	return fmt.Errorf("%w: %w", updater.ErrMalformed, TooLongError(maxBytes))
}

// TooLongError says that an answer has more bytes than its bound.
type TooLongError int64

// Error implements error.
func (e TooLongError) Error() string { return fmt.Sprintf("an answer of more than %d bytes", int64(e)) }

// wireReader counts the bytes on the wire, that is before decompression.
type wireReader struct {
	from      io.Reader
	declared  int64 // Content-Length; negative: unknown
	read, max int64
}

// Read implements io.Reader.
func (w *wireReader) Read(p []byte) (int, error) {
	n, err := w.from.Read(p)
	w.read += int64(n)
	if w.read > w.max { // body cannot see this: gzip can turn any number of bytes into none
		return n, tooLong(w.max)
	}
	if err == io.EOF && w.read < w.declared {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// gzipReader decompresses. The first Read reads the header of gzip: newBody must not block.
type gzipReader struct {
	from io.Reader
	gzip *gzip.Reader // nil: the header has not been read
}

// Read implements io.Reader.
func (z *gzipReader) Read(p []byte) (n int, err error) {
	if z.gzip == nil {
		z.gzip, err = gzip.NewReader(z.from)
	}
	if err == nil {
		n, err = z.gzip.Read(p)
	}
	if _, corrupt := errors.AsType[flate.CorruptInputError](err); corrupt || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		err = fmt.Errorf("%w: %w", updater.ErrMalformed, err)
	}
	return n, err
}

// during returns a reader of r that fails once ctx has ended.
func during(ctx context.Context, r io.Reader) io.Reader { return &duringReader{ctx, r} }

type duringReader struct {
	ctx  context.Context
	from io.Reader
}

// Read implements io.Reader.
func (d *duringReader) Read(p []byte) (int, error) {
	if err := d.ctx.Err(); err != nil {
		return 0, err
	}
	return d.from.Read(p)
}

// readWhole reads a whole answer into m. It fails if the answer exceeds b. It allocates memory for the
// bytes that have come, not for the length that the server declares.
func readWhole(answer *http.Response, b bound, m proto.Message) error {
	contentType := answer.Header.Get("Content-Type")
	if !isBinary(contentType) && mediaType(contentType) != "application/json" { // a portal's page may never end
		return fmt.Errorf("%w: an answer of type %q", updater.ErrMalformed, contentType)
	}
	declared := min(max(answer.ContentLength, 0), 1<<16)
	buf := bytes.NewBuffer(make([]byte, 0, declared+bytes.MinRead))
	if _, err := buf.ReadFrom(io.LimitReader(answer.Body, b.bytes+1)); err != nil {
		return err
	}
	raw := buf.Bytes()
	if int64(len(raw)) > b.bytes {
		return tooLong(b.bytes)
	}
	if err := b.check(raw, contentType, m.ProtoReflect().Descriptor()); err != nil {
		return err
	}
	var err error
	if isBinary(contentType) {
		err = proto.Unmarshal(raw, m)
	} else { // some servers send JSON whatever the client asks for
		if _, search := m.(*sbv5.SearchHashesResponse); search {
			raw, err = keepAttributes(raw)
		}
		if err == nil {
			err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, m)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", updater.ErrMalformed, err)
	}
	return nil
}

// mediaType returns a Content-Type without its parameters, or "" if it is malformed.
func mediaType(contentType string) string {
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}

// isBinary reports whether an answer with this Content-Type is a binary protobuf message. A
// missing type counts as binary.
func isBinary(contentType string) bool {
	switch mediaType(contentType) {
	case "", "application/x-protobuf", "application/protobuf", "application/vnd.google.protobuf", "application/octet-stream":
		return true
	}
	return false
}

// bound limits an answer that is read whole. docs/reliability.md states each bound.
type bound struct {
	bytes   int64 // of the body, compressed and decompressed
	structs int64 // of memory for the decoded messages and numbers, by their weights
}

var (
	// An answer about lookup.MaxPrefixes prefixes, with two full hashes for each prefix and
	// four details for each hash, has 35 kB; in JSON 180 kB. Nearly all prefixes have one.
	boundSearch = bound{256 << 10, 1 << 20}
	// Google's list of lists has some ten entries.
	boundLists = bound{1 << 20, 1 << 20}
	// Ten million entries in one answer, more than all of Google's lists together
	// had, are 13 MB; in JSON 17 MB.
	boundUpdates = bound{32 << 20, 8 << 20}
	// The parts of a streamed list that are not decoded while they come: a partial
	// update. One of this size would be longer than a full update.
	boundList = bound{16 << 20, 1 << 20}
)

const (
	// maxListBytes is the most bytes of an answer with lists that are decoded while they
	// come. The largest known list has less than 10 MB on the wire.
	maxListBytes = 128 << 20

	// A body may have freeBytes from any number of compressed bytes, and beyond that
	// maxRatio bytes for each compressed byte. freeBytes is four times boundSearch.
	// Rice-coded lists do not compress in binary form; in JSON they shrink to three
	// quarters. gzip itself can reach a ratio of 1,032.
	freeBytes = 1 << 20
	maxRatio  = 16

	maxErrorBytes   = 1 << 14 // of the body of an error that are read
	maxVersionBytes = 1 << 10 // Google's versions have a few dozen
	maxLists        = 1000    // in the list of lists
	maxSets         = 32      // of additions, and of removals, to a list: prefixes have 29 lengths
)

// The weights: roughly the bytes of memory of a decoded element, without its content.
const (
	messageWeight = 160
	numberWeight  = 8
)

// check returns an error if decoding raw would take more memory than b allows. It reads a
// byte at most once for each level of nested messages.
func (b bound) check(raw []byte, contentType string, kind protoreflect.MessageDescriptor) error {
	left := b.structs
	if isBinary(contentType) {
		left = weigh(raw, kind, left)
	} else {
		left -= messageWeight*int64(bytes.Count(raw, []byte{'{'})) + numberWeight*int64(bytes.Count(raw, []byte{','}))
	}
	if left < 0 {
		return fmt.Errorf("%w: the answer of %d bytes would take more than %d bytes of memory", updater.ErrMalformed, len(raw), b.structs+b.bytes)
	}
	return nil
}

// weigh subtracts the weight of the message in raw from left, an allowance in bytes of
// memory, and returns the rest. A negative rest means that the message is too heavy. If the
// message is malformed, only the part before the fault counts.
func weigh(raw []byte, kind protoreflect.MessageDescriptor, left int64) int64 {
	for len(raw) > 0 && left >= 0 {
		number, wire, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return left
		}
		raw = raw[n:]
		size := protowire.ConsumeFieldValue(number, wire, raw)
		if size < 0 {
			return left
		}
		left -= numberWeight
		if field := kind.Fields().ByNumber(number); field != nil && wire == protowire.BytesType {
			left = weighBytes(raw[:size], field, left)
		}
		raw = raw[size:]
	}
	return left
}

// weighBytes is weigh for one field with a length.
func weighBytes(raw []byte, field protoreflect.FieldDescriptor, left int64) int64 {
	value, _ := protowire.ConsumeBytes(raw)
	switch {
	case field.Message() != nil:
		return weigh(value, field.Message(), left-messageWeight)
	case field.IsPacked():
		for _, b := range value {
			if b < 0x80 { // the last byte of a number
				left -= numberWeight
			}
		}
	}
	return left
}
