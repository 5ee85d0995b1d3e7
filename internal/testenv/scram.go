package testenv

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
)

const scramName = "SCRAM-SHA-256"

// A scram proves a password as RFC 5802 and 7677 say. Whether the server knows it
// too is not checked.
type scram struct {
	password string
	nonce    string
}

func newScram(password string) *scram { return &scram{password: password, nonce: rand.Text()} }

func (s *scram) first() string { return "n,," + s.bare() }

// bare has no user name: PostgreSQL takes that of the start message.
func (s *scram) bare() string { return "n=,r=" + s.nonce }

func (s *scram) final(challenge string) (string, error) {
	field := make(map[string]string)
	for part := range strings.SplitSeq(challenge, ",") {
		name, value, _ := strings.Cut(part, "=")
		field[name] = value
	}
	salt, err := base64.StdEncoding.DecodeString(field["s"])
	if err != nil {
		return "", err
	}
	rounds, err := strconv.Atoi(field["i"])
	if err != nil || rounds < 1 || rounds > 1_000_000 || !strings.HasPrefix(field["r"], s.nonce) {
		return "", errors.New("a broken challenge of " + scramName)
	}
	salted, err := pbkdf2.Key(sha256.New, s.password, salt, rounds, sha256.Size)
	if err != nil {
		return "", err
	}
	withoutProof := "c=biws,r=" + field["r"]
	clientKey := mac(salted, "Client Key")
	stored := sha256.Sum256(clientKey)
	proof := mac(stored[:], s.bare()+","+challenge+","+withoutProof)
	for i := range proof {
		proof[i] ^= clientKey[i]
	}
	return withoutProof + ",p=" + base64.StdEncoding.EncodeToString(proof), nil
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
