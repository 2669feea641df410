package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress tells a person at a terminal what is waited for, on one line that is
// written anew and is gone at the end. The nil progress tells nobody.
type progress struct {
	w    io.Writer
	once sync.Once
	wg   sync.WaitGroup // of the goroutine that show starts
	done chan struct{}  // ends it
}

// newProgress returns nil unless w is a terminal.
func newProgress(w io.Writer) *progress {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &progress{w: w, done: make(chan struct{})}
}

// show writes what line returns, which is told the time and when show was
// called, four times a second until stop. Only the first call does anything.
func (p *progress) show(line func(now, begun time.Time) string) {
	if p == nil {
		return
	}
	p.once.Do(func() {
		p.wg.Go(func() { p.paint(line, time.Now()) })
	})
}

func (p *progress) paint(line func(now, begun time.Time) string, begun time.Time) {
	ticker := time.NewTicker(time.Second / 4)
	defer ticker.Stop()
	for i := 0; ; i++ {
		fmt.Fprintf(p.w, "\r\x1b[K%c %s", `|/-\`[i%4], line(time.Now(), begun))
		select {
		case <-ticker.C:
		case <-p.done:
			fmt.Fprint(p.w, "\r\x1b[K")
			return
		}
	}
}

// stop ends what show began and waits for it.
func (p *progress) stop() {
	if p == nil {
		return
	}
	close(p.done)
	p.wg.Wait()
}
