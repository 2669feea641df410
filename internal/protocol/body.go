package protocol

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

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
	bounded, err := newBody(ctx, answer, maxBytes)
	if err == nil {
		answer.Body = bounded
	}
	return err
}

// newBody returns the body of an answer. It may have at most maxBytes, compressed and
// decompressed.
func newBody(ctx context.Context, answer *http.Response, maxBytes int64) (*body, error) {
	if answer.ContentLength > maxBytes {
		return nil, fmt.Errorf("%w: an answer of %d bytes, at most %d are allowed", updater.ErrMalformed, answer.ContentLength, maxBytes)
	}
	wire := &wireReader{from: answer.Body, declared: answer.ContentLength, max: maxBytes}
	b := &body{Closer: answer.Body, ctx: ctx, from: wire, wire: wire, max: maxBytes}
	coding := answer.Header.Get("Content-Encoding")
	switch strings.ToLower(coding) {
	case "", "identity":
	case "gzip", "x-gzip": // equal, says RFC 9110 section 8.4.1.3
		b.from = &gzipReader{from: wire}
	default:
		return nil, fmt.Errorf("%w: an answer compressed by %q, asked for gzip", updater.ErrMalformed, coding)
	}
	return b, nil
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

// TooLongError says that an answer has more than so many bytes.
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

// readAll reads a whole answer. It allocates memory for the bytes that have come, not for
// the length that the server declares.
func readAll(answer *http.Response) ([]byte, error) {
	declared := min(max(answer.ContentLength, 0), 1<<16)
	buf := bytes.NewBuffer(make([]byte, 0, declared+bytes.MinRead))
	_, err := buf.ReadFrom(answer.Body)
	return buf.Bytes(), err
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
