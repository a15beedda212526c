// Checks trees, tiles, proofs, keys and notes that Berth made, by golang.org/x/mod/sumdb: reads them as JSON from standard
// input, writes "ok" or what differs.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type inclusion struct {
	Index, Size int64
	Proof       [][]byte
}

type consistency struct {
	Old, New int64
	Proof    [][]byte
}

type tile struct {
	Level, Number, Width int
	Hashes               []byte
}

type made struct {
	Leaves      [][]byte
	Roots       map[int64][]byte
	Inclusion   []inclusion
	Consistency []consistency
	Tiles       []tile
	Private     string
	Public      string
	Text        string
	Note        string
}

type stored []tlog.Hash

func (s stored) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	found := make([]tlog.Hash, len(indexes))
	for position, index := range indexes {
		found[position] = s[index]
	}
	return found, nil
}

func hashes(proof [][]byte) []tlog.Hash {
	found := make([]tlog.Hash, len(proof))
	for position, hash := range proof {
		copy(found[position][:], hash)
	}
	return found
}

func root(of made, size int64) (found tlog.Hash) {
	copy(found[:], of.Roots[size])
	return found
}

func check(of made) error {
	var all stored
	for index, leaf := range of.Leaves {
		next, err := tlog.StoredHashes(int64(index), leaf, all)
		if err != nil {
			return err
		}
		all = append(all, next...)
	}
	for size := range of.Roots {
		if found, err := tlog.TreeHash(size, all); err != nil || found != root(of, size) {
			return fmt.Errorf("root of %d leaves: %v, %w", size, found, err)
		}
	}
	for _, each := range of.Inclusion {
		leaf := tlog.RecordHash(of.Leaves[each.Index])
		if err := tlog.CheckRecord(hashes(each.Proof), each.Size, root(of, each.Size), each.Index, leaf); err != nil {
			return fmt.Errorf("inclusion of %d in %d: %w", each.Index, each.Size, err)
		}
	}
	for _, each := range of.Consistency {
		err := tlog.CheckTree(hashes(each.Proof), each.New, root(of, each.New), each.Old, root(of, each.Old))
		if err != nil {
			return fmt.Errorf("consistency of %d with %d: %w", each.Old, each.New, err)
		}
	}
	for _, each := range of.Tiles {
		wanted := tlog.Tile{H: 8, L: each.Level, N: int64(each.Number), W: each.Width}
		if found, err := tlog.ReadTileData(wanted, all); err != nil || !bytes.Equal(found, each.Hashes) {
			return fmt.Errorf("tile %s differs: %w", wanted.Path(), err)
		}
	}
	return checkNote(of)
}

func checkNote(of made) error {
	verifier, err := note.NewVerifier(of.Public)
	if err != nil {
		return err
	}
	signer, err := note.NewSigner(of.Private)
	if err != nil {
		return err
	}
	opened, err := note.Open([]byte(of.Note), note.VerifierList(verifier))
	if err != nil || opened.Text != of.Text {
		return fmt.Errorf("the note says %q: %w", opened.Text, err)
	}
	signed, err := note.Sign(&note.Note{Text: of.Text}, signer)
	if err != nil || string(signed) != of.Note {
		return fmt.Errorf("the same note is signed differently: %q, %w", signed, err)
	}
	return nil
}

func main() {
	var of made
	if err := json.NewDecoder(os.Stdin).Decode(&of); err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	if err := check(of); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}
