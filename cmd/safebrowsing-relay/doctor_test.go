package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/relay"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/sharing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// examineRedis runs the doctor on a Redis. It returns the exit status and what it says, by check.
func examineRedis(t *testing.T, url string) (status int, found map[string]diagnosis, out string) {
	t.Helper()
	status, out, errOut := invoke(t, "doctor", "-json", "-redis", url)
	testkit.Equal(t, "complaints", errOut, "")
	found = make(map[string]diagnosis)
	for line := range strings.Lines(out) {
		var d diagnosis
		testkit.Must(t, json.Unmarshal([]byte(line), &d))
		found[d.Check] = d
	}
	return status, found, out
}

// headAt returns the description of a list that was received at a time.
func headAt(received string) string {
	return fmt.Sprintf(`{"list":"se-4b","version":"MQ==","checksum":"MQ==","entries":1234,"received":%q,"format":1}`, received)
}

// fleetWith returns the commands that make what relays share: format, lease, and the description of a list.
func fleetWith(head string) [][]string {
	return [][]string{
		{"SET", "safebrowsing:1:{abc}:format", "1 v1.0.0"},
		{"SET", "safebrowsing:1:{abc}:lease:schedule.json", "relay7/123/XYZ", "PX", "600000"},
		{"HSET", "safebrowsing:1:{abc}:heads:schedule.json", "se-4b", head},
	}
}

func TestDoctorOfARedis(t *testing.T) {
	received := time.Now().Add(-90 * time.Minute).UTC().Format(time.RFC3339)
	head, old := headAt(received), headAt("2020-01-01T00:00:00Z")
	clocks := fmt.Sprintf(`{"lists":{"se-4b":{"not_before":"2020-01-01T00:00:00Z","updated":%q}}}`, received)
	schedule := fmt.Sprintf(`{"sha256":"%x","schedule":%s}`, sha256.Sum256([]byte(clocks)), clocks)
	fleet := fleetWith(head)
	for name, test := range map[string]struct {
		options []string
		begin   [][]string
		want    map[string]string // status and a part of the text, by check
		status  int
	}{
		"in order": {nil, fleet, map[string]string{
			"tls": "ok not used", "redis": "ok is Redis ", "memory": "ok without a limit",
			"lease": "ok relays of abc: relay7/123/XYZ fetches lists, until 20", "lists": "ok se-4b has 1234 entries, fetched 1h3"}, 0}, // and some minutes
		"nothing yet": {nil, nil, map[string]string{"redis": "ok can be written", "lease": "warning no relay uses this Redis"}, 0},
		"no lease":    {nil, [][]string{fleet[0], fleet[2]}, map[string]string{"lease": "warning none of them fetches lists", "lists": "ok 1234"}, 0},
		"a list that stays": {nil, [][]string{fleet[1], {"HSET", "safebrowsing:1:{abc}:heads:schedule.json", "se-4b", old}, {"SET", "safebrowsing:1:{abc}:schedule.json", schedule}},
			map[string]string{"lists": "ok se-4b has 1234 entries, fetched 1h3"}, 0},
		"an old list":           {nil, [][]string{fleet[1], {"HSET", "safebrowsing:1:{abc}:heads:schedule.json", "se-4b", old}}, map[string]string{"lists": "warning se-4b has 1234 entries"}, 0},
		"a damaged description": {nil, [][]string{fleet[0], {"HSET", "safebrowsing:1:{abc}:heads:schedule.json", "se-4b", "\xff"}}, map[string]string{"lists": "warning damaged"}, 0},
		"evicts":                {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}, nil, map[string]string{"memory": "warning of 104.9 MB are used, maxmemory-policy is allkeys-lru"}, 0},
		"does not":              {[]string{"--maxmemory", "100mb"}, nil, map[string]string{"memory": "ok noeviction"}, 0},
		"newer format":          {nil, [][]string{{"SET", "safebrowsing:1:{abc}:format", "2 v9.9.9"}}, map[string]string{"format": "problem 2 v9.9.9"}, 1},
		"full":                  {[]string{"--maxmemory", "1"}, nil, map[string]string{"redis": "problem OOM"}, 1},
		"read-only":             {[]string{"--replicaof", "127.0.0.1 1"}, nil, map[string]string{"redis": "problem READONLY"}, 1},
		"a password":            {[]string{"--requirepass", "s3cret"}, nil, map[string]string{"redis": "problem NOAUTH"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testkit.StartRedis(t, test.options...)
			for _, command := range test.begin {
				s.Do(command...)
			}
			status, found, out := examineRedis(t, s.URL())
			testkit.Equal(t, "status", status, test.status)
			for check, want := range test.want {
				wantStatus, part, _ := strings.Cut(want, " ")
				d := found[check]
				testkit.Equal(t, "status of "+check+" in "+out, d.Status, wantStatus)
				testkit.WantParts(t, string(d.Text), part)
				testkit.Equal(t, check+" is well, and needs no advice", d.Advice == "", d.Status == say.OK)
			}
			if strings.Contains(s.Do("KEYS", "*"), "doctor") {
				testkit.Equal(t, "it stays for ever", s.Do("PTTL", "safebrowsing:1:{doctor}:probe") == ":-1", false)
			}
		})
	}
}

// What relays of a key or a protocol of before have left stays for 14 days. They are none that do not work.
func TestDoctorDoesNotTakeWhatIsLeftForRelaysThatFail(t *testing.T) {
	s, old := testkit.StartRedis(t), headAt("1926-11-28T00:00:00Z")
	for _, command := range append(fleetWith(headAt(time.Now().UTC().Format(time.RFC3339))),
		[]string{"HSET", "safebrowsing:1:{abc}:heads:schedule-v4.json", "se-4b", old},
		[]string{"HSET", "safebrowsing:1:{01d}:heads:schedule.json", "se-4b", old}) {
		s.Do(command...)
	}
	_, _, out := examineRedis(t, s.URL())
	testkit.WantParts(t, out, "relays of 01d: none has used this Redis for minutes")
	testkit.WantNone(t, out, "look at the log")
	testkit.Equal(t, "lists of the relay that fetches", strings.Count(out, "1234 entries"), 1)
}

func TestDoctorOfARedisThatIsAway(t *testing.T) {
	status, found, out := examineRedis(t, "redis://:s3cret@"+testkit.FreeAddr(t))
	testkit.Equal(t, "status", status, say.BadNews)
	testkit.WantParts(t, found["redis"].Status+string(found["redis"].Text), say.Problem, "refused")
	testkit.WantNone(t, out, "s3cret")
}

func TestDoctorKnowsVersionsOfRedis(t *testing.T) {
	for _, test := range []struct{ name, version, want string }{
		{"", "7.0.15", say.OK}, {"", "6.2.0", say.OK}, {"", "6.0.16", say.Problem}, {"", "10.0.0", say.OK}, {"", "unknown", say.OK},
		{"valkey", "7.2.5", say.OK}, {"valkey", "7.0.0", say.Problem}, {"valkey", "8.0.1", say.OK},
	} {
		info := map[string]string{"redis_version": test.version}
		if test.name != "" {
			info = map[string]string{"server_name": test.name, "redis_version": "7.2.4", "valkey_version": test.version}
		}
		testkit.Equal(t, test, redisVersion("r", info).Status, test.want)
	}
}

func TestDoctorWarnsOfRedisInClearText(t *testing.T) {
	for url, want := range map[string]string{
		"redis://127.0.0.1": say.OK, "redis://[::1]": say.OK, "redis://localhost": say.OK, "rediss://cache.example": say.OK,
		"redis://cache.example": say.Warning, "redis+cluster://127.0.0.1,192.0.2.1": say.Warning,
		"redis+sentinel://127.0.0.1/main": say.Warning, "redis+cluster://127.0.0.1": say.Warning, "rediss+sentinel://127.0.0.1/main": say.OK,
	} {
		target, err := sharing.Parse(url)
		testkit.Must(t, err)
		testkit.Equal(t, url, redisTLS(target).Status, want)
	}
}

func TestDoctorSaysWhatARelayCosts(t *testing.T) {
	costs := relay.Costs{Since: time.Now().Add(-36 * time.Hour), Searches: 800, Reasons: map[string]int{"new": 300, "expired": 400, "popular": 100},
		Dollars: 40, Month: 811, Today: []relay.Dear{{Prefix: "9fe5666e", Searches: 24}}}
	mux := http.NewServeMux()
	mux.HandleFunc("/costs", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(costs) })
	server := httptest.NewServer(mux)
	defer server.Close()
	at := server.Listener.Addr().String()
	status, out, errOut := invoke(t, "doctor", "-admin", at)
	testkit.WantParts(t, out, "800 searches (300 new, 400 expired, 100 popular)",
		"40.00 US-$, at this rate 811 US-$ a month", "9fe5666e 24 (1.20 US-$)")
	testkit.Equal(t, errOut, status, 0)
	costs.Today = nil
	status, out, _ = invoke(t, "doctor", "-json", "-admin", at)
	testkit.Equal(t, "status, and checks in "+out, [2]int{status, strings.Count(out, "\n")}, [2]int{0, 1})
	for name, address := range map[string]string{"dead": testkit.FreeAddr(t), "no relay": at + "/x", "no address": "a b"} {
		status, out, _ := invoke(t, "doctor", "-admin", address)
		testkit.Equal(t, name, status, 1)
		testkit.WantParts(t, out, "cannot be asked")
	}
}
