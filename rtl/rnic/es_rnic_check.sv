// The checks of a segment that stand in docs/rnic.md, 9, in their order, but for the look-up of its memory: what is to be done with it.
//
// Combinational.
module es_rnic_check #(
    parameter int READS = 4  // Reads of a QP under way
) (
    input  wire es_rnic_pkg::fields_t         f,
    input  wire                        [15:0] length,
    input  wire                        [15:0] peer,
    input  wire es_rnic_pkg::context_t        qp,
    input  wire                        [ 3:0] state,
    input  wire es_rnic_pkg::known_t          known,
    output es_rnic_pkg::verdict_t             verdict,
    output logic                       [15:0] cause,       // of a fault: layer, type, code
    output logic                       [ 3:0] why,         // it is dropped
    output logic                              wrong_model  // the opcode does not go with model or queue
);
  logic takes, is_sync, is_send, is_malformed, is_absent, is_answer, is_last_serial, invalidates, breaks_off;
  logic [31:0] queue;

  always_comb begin
    case (f.opcode)
      es_rnic_pkg::ReadRequest: queue = 32'd1;
      es_rnic_pkg::Terminate: queue = 32'd2;
      es_rnic_pkg::Synchronise, es_rnic_pkg::Acknowledge: queue = 32'd4;
      default: queue = 32'd0;
    endcase
    takes = (state == es_rnic_pkg::Rtr || state == es_rnic_pkg::Rts || state == es_rnic_pkg::Sqd) && f.number == qp.number;
    is_sync = f.opcode == es_rnic_pkg::Synchronise && f.untagged;
    wrong_model = f.untagged == (f.opcode == es_rnic_pkg::Write || f.opcode == es_rnic_pkg::ReadResponse) || (f.untagged && f.qn != queue);
    invalidates = f.opcode == es_rnic_pkg::SendInvalidate || f.opcode == es_rnic_pkg::SendSolicitedInvalidate;
    is_send = f.opcode == es_rnic_pkg::Send || f.opcode == es_rnic_pkg::SendSolicited || invalidates;
    // Segments of a message follow each other (7).
    breaks_off = (known.writing && f.opcode != es_rnic_pkg::Write) || (known.offset != '0 && !is_send);
    is_malformed = 1'b1;
    if (f.dv != 2'd1) cause = f.untagged ? 16'h1206 : 16'h1104;
    else if (f.untagged && f.qn > 32'd4) cause = 16'h1201;
    else if (f.rv != 2'd1) cause = 16'h0205;
    else if (wrong_model) cause = 16'h0206;
    else begin
      is_malformed = 1'b0;
      cause = 16'h0000;
    end
    is_answer = known.sink_any && f.stag == known.sink_stag && f.to == {32'b0, known.sink_place} &&
        32'(f.data_bytes) <= known.sink_left && f.last == (32'(f.data_bytes) == known.sink_left);
    // A QP sends one Synchronise in its life.
    is_last_serial = f.msn == qp.first_sent + 1'b1 && state != es_rnic_pkg::Rtr && f.mo[31:16] == '0;
    is_absent = f.number == '0 && f.opcode == es_rnic_pkg::Acknowledge && f.stag == 32'd2 && f.mo[31:16] == '0;

    verdict = es_rnic_pkg::Forget;
    why = '0;
    if (length < f.header_bytes) why = es_rnic_pkg::Truncated;
    else if (is_malformed) begin
      why = es_rnic_pkg::Malformed;
      if (takes && peer == qp.peer) verdict = es_rnic_pkg::Fault;
    end else if (f.number == '0) begin
      if (is_absent) verdict = es_rnic_pkg::Absent;
      else why = es_rnic_pkg::Malformed;
    end else if (!takes || peer != qp.peer) begin
      why = takes ? es_rnic_pkg::Foreign : es_rnic_pkg::NoQp;
      if (is_sync) verdict = es_rnic_pkg::Answer;
    end else begin
      case (f.opcode)
        es_rnic_pkg::Acknowledge:
        if (f.stag < 32'd2 || (f.stag == 32'd2 && is_last_serial)) verdict = es_rnic_pkg::Taken;
        else why = es_rnic_pkg::Acknowledges;
        es_rnic_pkg::Terminate: verdict = es_rnic_pkg::Taken;
        es_rnic_pkg::Synchronise: begin
          if (f.stag != '0) begin
            // Restart.
            if (f.msn == known.expected && !known.writing) verdict = es_rnic_pkg::Taken;
            else begin
              why = es_rnic_pkg::Sequence;
              cause = 16'h0207;
              verdict = known.begun || known.refused ? es_rnic_pkg::Fault : es_rnic_pkg::Answer;
            end
          end else if (known.begun) verdict = es_rnic_pkg::Taken;
          else if (!known.refused) verdict = es_rnic_pkg::Answer;
        end
        es_rnic_pkg::ReadResponse: begin
          if (is_answer) verdict = f.data_bytes == '0 ? es_rnic_pkg::Taken : es_rnic_pkg::Put;
          else begin
            why = es_rnic_pkg::Answers;
            verdict = es_rnic_pkg::Ours;
          end
        end
        default:
        if (!known.begun) why = es_rnic_pkg::NotReady;
        else begin
          verdict = es_rnic_pkg::Fault;
          if (breaks_off) begin
            why   = es_rnic_pkg::Sequence;
            cause = 16'h0207;
          end else
            case (f.opcode)
              es_rnic_pkg::Write:
              if (!qp.rights[0]) begin
                why   = es_rnic_pkg::Denied;
                cause = 16'h0102;
              end else verdict = f.data_bytes == '0 ? es_rnic_pkg::Taken : es_rnic_pkg::Put;
              es_rnic_pkg::ReadRequest:
              if (f.msn != known.msn1) begin
                why   = es_rnic_pkg::Sequence;
                cause = 16'h1203;
              end else if (f.mo != '0 || !f.last || f.data_bytes != 16'd28) begin
                why   = es_rnic_pkg::Sequence;
                cause = 16'h1204;
              end else if (known.accepted >= qp.ird || known.accepted >= 8'(READS)) begin
                why   = es_rnic_pkg::Irrq;
                cause = 16'h1202;
              end else if (!qp.rights[1]) begin
                why   = es_rnic_pkg::Denied;
                cause = 16'h0102;
              end else verdict = f.read_length == '0 ? es_rnic_pkg::Taken : es_rnic_pkg::Put;
              es_rnic_pkg::Send, es_rnic_pkg::SendSolicited, es_rnic_pkg::SendInvalidate, es_rnic_pkg::SendSolicitedInvalidate:
              if (f.msn != known.msn0) begin
                why   = es_rnic_pkg::Sequence;
                cause = 16'h1203;
              end else if (f.mo != known.offset) begin
                why   = es_rnic_pkg::Sequence;
                cause = 16'h1204;
              end else if (!known.has_wqe && known.may_fetch) verdict = es_rnic_pkg::Fetching;
              else if (!known.has_wqe) begin
                why = es_rnic_pkg::NotReady;
                verdict = es_rnic_pkg::Answer;
              end else if (known.offset + 32'(f.data_bytes) > known.room) begin
                why   = es_rnic_pkg::TooLong;
                cause = 16'h1205;
              end else if (invalidates) begin
                // No window is ever bound: FEATURES has no WINDOWS.
                why   = es_rnic_pkg::Denied;
                cause = 16'h0209;
              end else verdict = f.data_bytes == '0 ? es_rnic_pkg::Taken : es_rnic_pkg::Put;
              default: begin
                why   = es_rnic_pkg::Malformed;
                cause = 16'h0206;
              end
            endcase
        end
      endcase
    end
  end
endmodule
