package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gorm.io/gorm"

	"github.com/capbus/gocap/cap"
)

// Product is a row of the shop's own table.
type Product struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// newProduct is the body of a request to create one.
type newProduct struct {
	Name string `json:"name"`
}

// ProductCreated and ProductDeleted are the messages: what others may know.
type (
	ProductCreated struct {
		ID   int64  `json:"id"`
		Name string `json:"name"`
	}
	ProductDeleted struct {
		ID int64 `json:"id"`
	}
)

// shop is the business: it changes products and tells of it. It does not know
// who listens.
type shop struct{ db *gorm.DB }

// add stores a product and publishes product.created, both or neither.
func (s shop) add(ctx context.Context, name string) (Product, error) {
	p := Product{Name: name}
	err := s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&p).Error; err != nil {
			return err
		}
		return cap.Publish(ctx, tx, "product.created", ProductCreated(p))
	})
	return p, err
}

// remove deletes a product and publishes product.deleted, both or neither.
func (s shop) remove(ctx context.Context, id int64) error {
	return s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		res := tx.Delete(&Product{}, id)
		if res.Error != nil {
			return res.Error
		}
		if res.RowsAffected == 0 {
			return &httpError{http.StatusNotFound, fmt.Sprintf("there is no product %d", id)}
		}
		return cap.Publish(ctx, tx, "product.deleted", ProductDeleted{ID: id})
	})
}

func (s shop) list(w http.ResponseWriter, r *http.Request) error {
	products := []Product{}
	if err := s.db.WithContext(r.Context()).Order("id").Find(&products).Error; err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, products)
}

func (s shop) create(w http.ResponseWriter, r *http.Request) error {
	var in newProduct
	if err := readJSON(w, r, &in); err != nil {
		return err
	}
	name := strings.TrimSpace(in.Name)
	if n := utf8.RuneCountInString(name); n < 1 || n > 100 || strings.ContainsFunc(name, unicode.IsControl) {
		return &httpError{http.StatusBadRequest, "name must have 1 to 100 characters, and no control characters"}
	}
	p, err := s.add(r.Context(), name)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, p)
}

func (s shop) delete(w http.ResponseWriter, r *http.Request) error {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return &httpError{http.StatusBadRequest, fmt.Sprintf("%q is not the id of a product", r.PathValue("id"))}
	}
	if err := s.remove(r.Context(), id); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
