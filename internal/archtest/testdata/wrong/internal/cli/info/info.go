package info
