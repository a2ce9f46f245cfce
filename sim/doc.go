// Package sim plays whole clusters in virtual time.
package sim
