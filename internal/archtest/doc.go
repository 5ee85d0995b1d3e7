// Package archtest keeps the packages of this module apart: its tests compare
// every import with the table of what each package may import, and fail on an
// arrow, or on a package, which the table does not have.
package archtest
