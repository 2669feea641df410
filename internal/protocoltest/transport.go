package protocoltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
)

var errClosed = errors.New("protocoltest: connection closed without an answer")

// RoundTrip answers a request in-process. It waits, in the goroutine of the caller,
// only while a fault delays the answer.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	ctx := r.Context()
	if err := ctx.Err(); err != nil {
		return nil, err // as http.Transport: nothing was sent
	}
	x := s.begin(r)
	if err := x.think(ctx); err != nil {
		return nil, err
	}
	x.deliver()
	if x.reply.closed {
		return nil, errClosed
	}
	b := newBody(ctx, x)
	response := &http.Response{
		StatusCode: x.reply.status, Status: strconv.Itoa(x.reply.status) + " " + http.StatusText(x.reply.status),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: x.reply.header.Clone(), Body: b, ContentLength: int64(len(x.reply.body)), Request: r,
	}
	if x.reply.endless {
		response.ContentLength = -1
	}
	return response, nil
}

// body is the body of an answer in-process. It tells the referee when the client
// has read it all, or stopped before.
type body struct {
	ctx  context.Context
	x    *exchange
	left []byte
}

func newBody(ctx context.Context, x *exchange) *body {
	b := &body{ctx: ctx, x: x, left: x.reply.body}
	if x.reply.cut {
		b.left = b.left[:len(b.left)/2]
	}
	if len(b.left) == 0 && !x.reply.endless {
		b.x.end(received) // counts only if nothing is wrong with the reply
	}
	return b
}

// Read gives what is left of the body.
func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.ctx.Err() != nil:
		b.x.interrupt(b.ctx)
		return 0, b.ctx.Err()
	case b.x.reply.endless:
		return endlessBytes(p), nil
	case len(b.left) == 0 && b.x.reply.cut:
		return 0, io.ErrUnexpectedEOF
	case len(b.left) == 0:
		return 0, io.EOF
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	if len(b.left) == 0 {
		b.x.end(received)
	}
	return n, nil
}

// Close ends the answer. A client that closes before the end has refused it.
func (b *body) Close() error {
	b.x.end(failed)
	return nil
}

// endlessBytes fills p with a well-formed beginning of a message that could last
// for ever: empty fields of an unknown number.
func endlessBytes(p []byte) int {
	for i := range p {
		p[i] = [2]byte{0x7a, 0x00}[i%2]
	}
	return len(p)
}

// ServeHTTP answers a request on a socket. A lost connection counts as a
// cancellation, since the reason cannot be known here.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := s.begin(r)
	if x.think(r.Context()) != nil {
		return
	}
	x.deliver()
	if x.reply.closed {
		closeConnection(w)
	}
	maps.Copy(w.Header(), x.reply.header)
	if x.reply.endless {
		writeEndless(r.Context(), w, x)
		return
	}
	if x.reply.status != http.StatusNoContent {
		w.Header().Set("Content-Length", strconv.Itoa(len(x.reply.body)))
	}
	w.WriteHeader(x.reply.status)
	if x.reply.cut {
		_, _ = w.Write(x.reply.body[:len(x.reply.body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // the documented way to break off an answer
	}
	writeBody(r.Context(), w, x)
}

// writeBody writes the whole body. The referee must know the outcome before the
// client does, which may ask again at once: hence the last byte goes by itself.
func writeBody(ctx context.Context, w io.Writer, x *exchange) {
	last := max(0, len(x.reply.body)-1)
	_, err := io.Copy(w, bytes.NewReader(x.reply.body[:last]))
	if err != nil || ctx.Err() != nil {
		x.end(cancelled)
		return
	}
	x.end(received)
	_, _ = w.Write(x.reply.body[last:]) // too late to learn from an error
}

// writeEndless writes until the client hangs up.
func writeEndless(ctx context.Context, w http.ResponseWriter, x *exchange) {
	w.WriteHeader(x.reply.status)
	chunk := make([]byte, 32<<10)
	endlessBytes(chunk)
	for ctx.Err() == nil {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// closeConnection closes the connection and does not return. It sends the beginning
// of a status line first, since Go's client silently repeats a request whose
// connection closes without a byte, and the repetition would look like a violation.
func closeConnection(w http.ResponseWriter) {
	if conn, buffered, err := http.NewResponseController(w).Hijack(); err == nil {
		_, _ = buffered.WriteString("HTTP/1.1")
		_ = buffered.Flush()
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}
