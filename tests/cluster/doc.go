// Package cluster lets real nodes fail under real clients, and has others judge what the clients saw.
//
// Nodes are processes of their own; their ends are SIGKILL, SIGSTOP and cut connections. The clients are gocb's, the
// judge of their histories is porcupine, and the reader of DCP streams is gocbcore's.
package cluster
