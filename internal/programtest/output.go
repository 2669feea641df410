package programtest

import (
	"bytes"
	"sync"
)

// Output keeps what a program writes, for a test that reads it while the program runs. The zero
// value is ready to use. It is safe for concurrent use.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns what was written so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
