// Package sdk holds the end-to-end suite of the official Go SDK against Kedge; everything is in its tests.
package sdk
