package sharing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
)

// upload stores what write writes, in parts. It calls write twice: the parts are named by the
// SHA-256 of all.
func (s *Store) upload(ctx context.Context, prefix string, write func(io.Writer) error) (blob, error) {
	sum := sha256.New()
	var size counter
	if err := write(io.MultiWriter(sum, &size)); err != nil {
		return blob{}, err
	}
	if size == 0 || size > maxContent {
		return blob{}, fmt.Errorf("a content of %d bytes", size)
	}
	b := blob{SHA256: hex.EncodeToString(sum.Sum(nil)), Bytes: int(size)}
	w := &partWriter{ctx: ctx, store: s, blob: b, prefix: prefix}
	if err := write(w); err != nil {
		return blob{}, err
	}
	return b, w.flush()
}

// counter counts bytes.
type counter int

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// partWriter stores what is written to it, in parts.
type partWriter struct {
	ctx    context.Context
	store  *Store
	blob   blob
	prefix string
	part   []byte
	n      int // parts that are stored
}

// Write implements io.Writer.
func (w *partWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		m := min(len(p)-n, partBytes-len(w.part))
		w.part = append(w.part, p[n:n+m]...)
		n += m
		if len(w.part) == partBytes {
			if err := w.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// flush stores the part that is at hand.
func (w *partWriter) flush() error {
	if len(w.part) == 0 {
		return nil
	}
	_, err := w.store.cfg.Client.Do(w.ctx, "publish", "SET", []string{w.blob.key(w.prefix, w.n)}, string(w.part), "PX", strconv.FormatInt(keepParts.Milliseconds(), 10))
	w.part, w.n = w.part[:0], w.n+1
	return err
}
