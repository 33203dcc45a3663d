"""The view: lines, trees and tables of the command line."""
