//go:build race

package relay

// With the race detector 500 clients would take minutes.
const herdClients = 50
