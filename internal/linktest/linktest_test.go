package linktest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A link hands on what is sent, late after a loss, and nothing while it is down.
func TestALinkCanBeCut(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") }))
	defer s.Close()
	l := New(t, s.Listener.Addr().String())
	get := func(timeout time.Duration) string {
		c := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := c.Get(l.URL)
		if err != nil {
			return "nothing"
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return string(body)
	}
	for _, step := range []struct {
		name       string
		lost, down bool
		want       string
	}{{"at first", false, false, "here"}, {"lost", true, false, "nothing"}, {"down", false, true, "nothing"}, {"afterwards", false, false, "here"}} {
		l.Set(step.lost, step.down)
		timeout := 20 * time.Second
		if step.lost {
			timeout = 50 * time.Millisecond
		}
		if got := get(timeout); got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
	}
	l.Set(true, false)
	late := make(chan string, 1)
	go func() { late <- get(20 * time.Second) }()
	l.Set(false, false)
	if got := <-late; got != "here" {
		t.Errorf("after a loss: got %s", got)
	}
}
