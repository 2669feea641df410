package programtest

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// Body returns what a URL is answered with.
func Body(t testing.TB, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// WantOK waits until a URL is answered with status 200, for ten seconds at least.
func WantOK(t testing.TB, url string) {
	t.Helper()
	status := 0
	for range 2000 {
		answer, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if status = answer.StatusCode; status == http.StatusOK {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("%s has status %d", url, status)
}
