//go:build !race

package relay

const herdClients = 500
